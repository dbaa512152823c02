"""The graph that is exported answers as the library does, whatever the size of a batch."""

import numpy as np
import onnxruntime
import pytest

import fedpn
from fedpn.cli.main import main
from fedpn.routing.outcomes import OUTCOMES

RUNS = {
    "fedpn": {"rounds": 2, "fedpn__adapt_steps": 30, "fedpn__adapt_epochs": 0},
    "switch": {"rounds": 2, "fedpn__adapt_steps": 30, "routing__rule": "quantiles"},
    "analytic": {"algorithm": "analytic", "head__filters": 10, "routing__risk": 0.1},
    "ditto": {"algorithm": "ditto", "rounds": 2, "routing__router": "gaussian"},
    "fedavg": {"algorithm": "fedavg", "rounds": 2},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_graph_answers_as_the_library(name, tmp_path):
    fedpn.run(tmp_path / "run", dataset="digits", clients=3, train__steps=2, **RUNS[name])
    images = fedpn.open_dataset("digits").x[:40]
    noise = np.random.default_rng(0).integers(0, 256, (5, 1, 28, 28)).astype(np.uint8)
    images = np.concatenate([images, noise])
    _compare(tmp_path, "1", images)


def test_rows_of_a_table(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (rng.normal(size=(300, 4)) + y[:, None]).astype(np.float32)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    data = {"dataset": str(tmp_path / "t.npz"), "clients": 3, "algorithm": "analytic"}
    fedpn.run(tmp_path / "run", **data, head__fourier=30)
    _compare(tmp_path, "0", np.concatenate([x[:30], np.full((1, 4), 1e6, np.float32)]))


def _compare(place, client, inputs):
    out = place / "one"
    command = ["export", str(place / "run"), "--client", client, "--onnx", "--out", str(out)]
    assert main(command) == 0
    predictor = fedpn.load(out)
    weighs = predictor.bundle.rule is not None and predictor.bundle.rule.weighs
    expected = predictor(inputs, own_share=0.5 if weighs else None)
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    for count in (1, len(inputs)):
        found = dict(zip(names, session.run(None, {"inputs": inputs[:count]}), strict=True))
        for i, answer in enumerate(expected[:count]):
            probs = list(answer.probabilities.values())
            assert found["probabilities"][i] == pytest.approx(probs, abs=1e-4)
            assert predictor.bundle.classes[found["label"][i]] == answer.guess
            if predictor.bundle.rule is not None or answer.source == "nobody":
                assert OUTCOMES[found["outcome"][i]] == answer.outcome
            for kind, value in answer.uncertainty.items():
                assert found[kind][i] == pytest.approx(value, abs=1e-4, rel=1e-4)
