"""The gate for strangers, in a run and in what answers from it: nobody answers them."""

import numpy as np
import pytest
import torch

import fedpn
from fedpn.data.sources import datasets
from fedpn.federated.gate import gate_phases, strangers
from fedpn.runs import pipeline
from fedpn.runs.config import resolve

SMALL = {
    "dataset": "digits",
    "clients": 4,
    "rounds": 1,
    "train": {"steps": 2},
    "method": {"adapt_epochs": 1, "adapt_steps": 0},
    "routing": {"strangers": 0.05, "abstain": 0.2, "outliers": 0.2},
}
STRANGERS = {
    "noise": np.random.default_rng(0).integers(0, 256, (60, 28, 28)).astype(np.uint8),
    "black": np.zeros((60, 28, 28), np.uint8),
    "white": np.full((60, 28, 28), 255, np.uint8),
    "inverted": 255 - datasets.load("digits").x[:60, 0],
}


@pytest.fixture(scope="module", params=["fedpn", "fedavg", "analytic"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    changes = {"algorithm": request.param}
    if request.param == "analytic":
        changes |= {"rounds": 0, "head": {"filters": 5}}
    return out, pipeline.run(resolve([SMALL | changes]), out)


@pytest.mark.parametrize("kind", STRANGERS)
def test_strangers_are_answered_by_nobody_and_the_reason_says_so(run, kind):
    answers = fedpn.load(run[0], client="1")(STRANGERS[kind])
    refused = [a for a in answers if a.outcome == "stranger"]
    assert len(refused) >= 0.95 * len(answers)
    for answer in refused:
        assert answer.source == "nobody" and answer.label is None
        assert "like nothing that the federation has seen" in answer.reason


def test_known_inputs_pass(run):
    answers = fedpn.load(run[0], client="1")(datasets.load("digits").x[:400])
    assert sum(a.outcome == "stranger" for a in answers) < 0.12 * len(answers)
    if "outcomes" in run[1]["abstention"]:
        assert 0.0 < run[1]["abstention"]["outcomes"]["stranger"] < 0.12


def test_the_exported_folder_has_the_gate(run, tmp_path):
    from fedpn.serving.export import export

    export(run[0], "1", tmp_path / "one")
    answers = fedpn.load(tmp_path / "one")(STRANGERS["noise"])
    assert all(a.source == "nobody" for a in answers)


def test_without_a_gate_nothing_changes(tmp_path):
    assert gate_phases(0.0) == []
    out = tmp_path / "run"
    pipeline.run(resolve([SMALL | {"algorithm": "fedavg"}, {"routing": {"strangers": 0.0}}]), out)
    answers = fedpn.load(out)(STRANGERS["noise"])
    assert {a.source for a in answers} == {"global"}


def test_a_model_that_breaks_down_is_no_answer(tmp_path):
    """A method without a switch, too: features beyond what float32 can bear."""
    rng = np.random.default_rng(0)
    lines = ["a,b,label"] + [f"{x:.3f},{y:.3f},{int(x > 0)}" for x, y in rng.normal(size=(400, 2))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    config = {"dataset": str(tmp_path / "t.csv"), "algorithm": "fedavg", "clients": 2, "rounds": 1}
    pipeline.run(resolve([config, {"data": {"partition": "iid"}}]), tmp_path / "run")
    for answer in fedpn.load(tmp_path / "run")(np.array([[3e38, -3e38], [3e38, 3e38]])):
        finite = np.isfinite(answer.confidence) and np.isfinite(answer.uncertainty["total"])
        assert finite and (answer.source == "nobody" or answer.confidence <= 1)


def test_both_engines_learn_the_same_gate(tmp_path):
    flower_grid = pytest.importorskip("flower_grid")
    import json

    from flwr.app import Context, RecordDict
    from safetensors.torch import load_file

    from fedpn.flower.app.server_app import app
    from fedpn.runs.config import to_tree

    config = resolve([SMALL | {"algorithm": "fedavg"}])
    nodes = {
        100 + i: {"partition-id": i, "num-partitions": 4, "state-dir": str(tmp_path / f"n{i}")}
        for i in range(4)
    }
    asked = {"config": json.dumps(to_tree(config)), "out": str(tmp_path / "flower")}
    asked |= {"resume": False, "nodes": 4, "timeout": 0.2, "round-timeout": 60.0}
    app(flower_grid.LocalGrid(nodes), Context(7, flower_grid.SERVER, {}, RecordDict(), asked))
    pipeline.run(config, tmp_path / "simulated")
    ours, theirs = (load_file(tmp_path / d / "gate.safetensors") for d in ("flower", "simulated"))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    x = torch.from_numpy(STRANGERS["noise"])[:, None]
    assert strangers(x, ours).all()
    answers = fedpn.load(tmp_path / "n1")(STRANGERS["black"])
    assert all(a.source == "nobody" for a in answers)
