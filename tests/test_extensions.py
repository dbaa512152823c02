"""A router with fitted state, a phase of summable statistics and a rule, each in one small file.

They work in `fedpn run`, in `predict` from a bundle, and on Flower, without a line elsewhere.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedpn
from fedpn.cli.main import main
from fedpn.core.settings import nest
from fedpn.runs import pipeline
from fedpn.runs.config import resolve, to_tree
from fedpn.runs.prepare import deal, prepare

HERE = Path(__file__).parent / "extensions"
ROUTER, PHASE = HERE / "nearest_router.py", HERE / "class_means.py"
RULE = HERE / "margin_rule.py"
SMALL = {
    "dataset": "digits",
    "clients": 4,
    "rounds": 3,
    "train.steps": 3,
    "model.layers": 3,
    "method.adapt_steps": 20,
    "method.adapt_epochs": 0,
}
OWN = {
    "routing.router": f"{ROUTER}:Nearest",
    "routing.rule": "quantiles",
    "head.kind": f"{PHASE}:Means",
}
CONFIG = resolve([nest(SMALL | OWN)])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "run"
    return out, pipeline.run(CONFIG, out)


def test_the_files_are_short():
    assert len(ROUTER.read_text().splitlines()) <= 40
    assert len(PHASE.read_text().splitlines()) <= 30
    assert len(RULE.read_text().splitlines()) <= 40


def test_the_global_model_answers_by_the_means_of_all_rows(simulated):
    """The head against means taken by hand over all clients' training rows."""
    out, _ = simulated
    setup = prepare(CONFIG)
    shared = load_file(out / "shared.safetensors")
    rows = np.concatenate(setup.federation.train)
    with torch.no_grad():
        z = setup.model.embed(shared, setup.data.x[torch.from_numpy(rows)])
    labels = setup.data.y[torch.from_numpy(rows)]
    means = torch.stack([z[labels == k].mean(0) for k in range(10)])
    torch.testing.assert_close(load_file(out / "head.safetensors")["means"], means)


def test_answers_of_a_bundle_are_those_of_the_run(simulated, tmp_path):
    out, metrics = simulated
    dataset, federation = deal(CONFIG)
    from fedpn.serving.export import export

    export(out, 2, tmp_path / "bundle", trust=True)
    rows = np.concatenate([federation.ind(2), federation.ood(2)])
    answers = fedpn.load(tmp_path / "bundle", trust=True)(dataset.x[rows])
    sources = {answer.outcome for answer in answers}
    assert {"local_confident", "local_ood"} <= sources
    names = np.array([answer.guess for answer in answers])
    right = names == np.array(dataset.classes)[dataset.y[rows]]
    known = len(federation.ind(2))
    told = metrics["per_client"][2]["accuracy"]["switch"]
    assert right[:known].mean() == pytest.approx(told["ind"], abs=0.02)
    assert right[known:].mean() == pytest.approx(told["ood"], abs=0.02)


def test_flower_comes_to_the_same(simulated, tmp_path):
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")
    from fedpn.flower.app.server import serve
    from fedpn.flower.app.terms import read_terms
    from flower_grid import LocalGrid

    nodes = {
        10 + i: {"partition-id": i, "num-partitions": 4, "state-dir": str(tmp_path / f"node{i}")}
        for i in range(4)
    }
    asked = {
        "config": json.dumps(to_tree(CONFIG)),
        "out": str(tmp_path / "run"),
        "resume": False,
        "nodes": 4,
        "timeout": 5.0,
        "round-timeout": 60.0,
    }
    with pytest.raises(RuntimeError, match=r"(?s)0 of 4 nodes came.*executes no code"):
        serve(LocalGrid(nodes), read_terms(asked | {"timeout": 0.0}), lambda event: None)
    for node in nodes.values():  # each of whose operators trusts what runs bring
        state = Path(node["state-dir"])
        state.mkdir(exist_ok=True)
        (state / "policy.toml").write_text("code = true\n")
    found = serve(LocalGrid(nodes), read_terms(asked), lambda event: None)
    out, metrics = simulated
    assert found["routing"]["score"].endswith(":Nearest")
    for who, row in metrics["accuracy"].items():
        assert found["accuracy"][who] == pytest.approx(row, abs=0.01), who
    kept = {path.name for path in (tmp_path / "node1" / "bundle" / "code").glob("*.py")}
    assert kept == {ROUTER.name, PHASE.name}
    ours = load_file(tmp_path / "node1" / "bundle" / "head.safetensors")["means"]
    torch.testing.assert_close(ours, load_file(out / "head.safetensors")["means"])
    dataset, _ = deal(CONFIG)
    here = fedpn.load(tmp_path / "node1", trust=True)(dataset.x[:50])
    there = fedpn.load(out, 1, trust=True)(dataset.x[:50])
    assert [a.guess for a in here] == [a.guess for a in there]


def test_a_rule_of_ones_own(tmp_path):
    config = resolve([nest(SMALL | {"routing.rule": f"{RULE}:Surer"})])
    metrics = pipeline.run(config, tmp_path / "run")
    assert metrics["headline"] == "surer"
    assert {"switch", "bayes", "surer"} <= metrics["accuracy"].keys()
    dataset, federation = deal(config)
    rows = federation.ind(1)
    answers = fedpn.load(tmp_path / "run", 1, trust=True)(dataset.x[rows])
    assert "entropy" in answers[0].reason
    right = np.array([a.guess for a in answers]) == np.array(dataset.classes)[dataset.y[rows]]
    told = metrics["per_client"][1]["accuracy"]["surer"]["ind"]
    assert right.mean() == pytest.approx(told, abs=0.02)


def test_code_that_a_folder_names_is_not_run_unless_it_is_trusted(simulated, tmp_path, capsys):
    """A folder may come from anybody: to open it, or to go on with it, runs nothing of theirs."""
    out, _ = simulated
    with pytest.raises(fedpn.UserError, match=r"names code of its own .*--trust"):
        fedpn.load(out, 1)
    np.savez(tmp_path / "x.npz", images=np.zeros((1, 8, 8), np.uint8))
    assert main(["predict", str(out), str(tmp_path / "x.npz"), "--client", "1"]) == 2
    assert main(["export", str(out), "--client", "1", "--out", str(tmp_path / "b")]) == 2
    resume = ["run", "--resume", "--out", str(out)]
    assert main(resume) == 2
    assert "nearest_router.py:Nearest" in capsys.readouterr().err
    assert main(["predict", str(out), str(tmp_path / "x.npz"), "--client", "1", "--trust"]) == 0
    typed = [f"--set={key}={value}" for key, value in OWN.items()]
    assert main([*resume, *typed]) == 0
    assert main([*resume, "--trust"]) == 0
