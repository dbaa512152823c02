"""A network of one's own keeps the types of its buffers, in the simulator and on Flower alike."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from liars import LIAR, NODES, conduct, nodes, settings, tensors, with_tensors
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

import fedpn
from fedpn.cli.main import main
from fedpn.federated.checkpoint import STATE, read_state
from fedpn.flower.app.standing import read_standing
from fedpn.flower.app.state import NodeState
from fedpn.runs import pipeline
from fedpn.runs.prepare import deal, fingerprint, prepare
from flower_grid import LocalGrid

NET = Path(__file__).parents[1] / "extensions/counting_net.py"
LARGE = 2**60 + 1
TYPES = {
    "encoder.rows": torch.int64,
    "encoder.bright": torch.bool,
    "encoder.table": torch.uint8,
    "encoder.scale16": torch.float16,
    "encoder.brain16": torch.bfloat16,
    "encoder.body.1.num_batches_tracked": torch.int64,
    "encoder.body.1.running_var": torch.float32,
}
OWN = {
    "model": {"encoder": f"{NET}:Counting"},
    "rounds": 3,
    "data": {"limit": 400, "partition": "dirichlet", "beta": 1.0},
}


def own(algorithm="fedavg", *layers):
    return settings(algorithm, OWN, *layers)


def trusting(home):
    """Nodes that run the network that comes with the run."""
    for i in range(NODES):
        (home / f"node{i}").mkdir(parents=True)
        (home / f"node{i}/policy.toml").write_text("code = true\n")
    return nodes(home)


def types(params):
    return {name: params[name].dtype for name in TYPES}


def compare(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, t in theirs.items():
        assert ours[name].dtype == t.dtype, name
        if t.is_floating_point():
            torch.testing.assert_close(ours[name], t, rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(ours[name], t), name


RESET = {"method": {"optimizer_state": "reset"}}
CASES = {
    "batch norm alone": ("fedavg", {"model": {"encoder": f"{NET}:Plain"}}),
    "fedavg": ("fedavg", {}),
    "epochs": ("fedavg", {"train": {"steps": 0, "epochs": 1}}),  # clients count differently
    "stacked": ("fedavg", {"engine": {"cohort": 4}}),
    "fedbn": ("fedbn", {}),
    "ditto": ("ditto", {}),
    "apfl": ("apfl", {}),
    "pfedme": ("pfedme", {}),
    "scaffold": ("scaffold", {}),
    "fedavgm": ("fedavgm", {}),
    "median": ("fedavg", {"aggregation": {"rule": "median"}} | RESET),
    "trimmed": ("fedavg", {"aggregation": {"rule": "trimmed", "byzantine": 0.25}} | RESET),
    "multikrum": ("fedavg", {"aggregation": {"rule": "multikrum"}} | RESET),
    "private": (
        "fedavg",
        {"aggregation": {"rule": "private", "noise": 0.01, "repeatable": True}} | RESET,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_types_stay_and_both_engines_agree(case, tmp_path):
    config = own(*CASES[case])
    conduct(LocalGrid(trusting(tmp_path)), config, tmp_path / "flower")
    pipeline.run(config, tmp_path / "simulated")
    standing = read_standing(tmp_path / "flower")
    simulated, about = read_state(tmp_path / "simulated" / STATE)
    server = {f"{r}/{n}": t for r, params in standing.server.items() for n, t in params.items()}
    compare(server, {name: simulated[name] for name in json.loads(about["names"])})
    shared = load_file(tmp_path / "simulated/shared.safetensors")
    known = {n: kind for n, kind in TYPES.items() if n in shared}
    assert {n: shared[n].dtype for n in known} == known
    ready = prepare(config)
    data = fingerprint(ready.dataset)
    simulator = pipeline.simulate(config, ready, tmp_path / "simulated")
    simulator.restore(
        {n.removeprefix("kept."): t for n, t in simulated.items() if n.startswith("kept.")}, {}
    )
    for client in range(NODES):
        state = NodeState(tmp_path / f"node{client}", standing.run, data)
        remembered = simulator.memories[client]
        kept = state.load(3, tuple(remembered))
        for role, params in remembered.items():
            compare(kept[role], params)
    ours, theirs = (
        json.loads((tmp_path / d / "metrics.json").read_text()) for d in ("flower", "simulated")
    )
    rows = sum(len(rows) for rows in ready.federation.test)
    for who, accuracy in theirs["accuracy"].items():
        assert ours["accuracy"][who] == pytest.approx(accuracy, abs=2 / rows), who


def test_what_is_counted_is_the_mean_and_a_constant_is_exact(tmp_path):
    config = own("fedavg", {"train": {"steps": 5, "batch": 8}})
    pipeline.run(config, tmp_path / "run")
    shared = load_file(tmp_path / "run/shared.safetensors")
    assert types(shared) == TYPES
    assert int(shared["encoder.body.1.num_batches_tracked"]) == 15
    assert int(shared["encoder.rows"]) == LARGE + 15 * 8
    assert shared["encoder.scale16"].tolist() == [303.75] * 3
    assert shared["encoder.brain16"].tolist() == [300.0] * 3
    assert shared["encoder.table"].tolist() == list(range(4))
    assert shared["encoder.bright"].any() and not shared["encoder.bright"].all()


def test_under_masks_counts_are_exact(tmp_path):
    """They move further than weights may; the sum is the simulator's."""
    config = own("fedavg", {"train": {"steps": 20, "batch": 8}, "routing": {"strangers": 0.0}})
    conduct(LocalGrid(trusting(tmp_path)), config, tmp_path / "masked", secure=True)
    pipeline.run(config, tmp_path / "simulated")
    ours = read_standing(tmp_path / "masked").server["model"]
    theirs = load_file(tmp_path / "simulated/shared.safetensors")
    for name, t in theirs.items():
        assert ours[name].dtype == t.dtype
        if t.is_floating_point():
            torch.testing.assert_close(ours[name], t, rtol=1e-3, atol=1e-4)
        else:
            assert torch.equal(ours[name], t), name


def test_a_private_mean_tells_nothing_of_counts(tmp_path):
    private = {"aggregation": {"rule": "private", "noise": 0.01}} | RESET
    pipeline.run(own("fedavg", private), tmp_path / "run")
    shared = load_file(tmp_path / "run/shared.safetensors")
    assert int(shared["encoder.rows"]) == LARGE
    assert not shared["encoder.bright"].any()
    assert shared["encoder.scale16"].tolist() == [300.0] * 3


def test_counts_are_no_part_of_how_far_a_model_moved(tmp_path):
    """Sixty rows counted are no step of 60, which `max_norm` would refuse."""
    pipeline.run(own("fedavg", {"faults": {"max_norm": 5.0}}), tmp_path / "run")
    lines = (tmp_path / "run/history.jsonl").read_text().splitlines()
    assert all(not json.loads(line)["refused"] for line in lines)
    assert all(json.loads(line)["norm"] < 5 for line in lines)


@pytest.mark.parametrize("attack", ["sign_flip", "scale", "noise"])
def test_attacks_leave_types_alone(attack, tmp_path):
    faults = {"attack": attack, "attackers": 0.25, "strength": 2.0}
    pipeline.run(own("fedavg", {"faults": faults}), tmp_path / "run")
    assert types(load_file(tmp_path / "run/shared.safetensors")) == TYPES


def test_a_count_that_cannot_be_is_refused(tmp_path, capsys):
    """And counts do not hide a weight that cannot be: each is held against its like."""

    def lie(name_part, change):
        def spoil(kind, number, content):
            if kind != "train" or number != LIAR:
                return content
            assert any(name_part in name for name in tensors(content))
            return with_tensors(content, lambda n, t: change(t) if name_part in n else t)

        return spoil

    for place, part, change in (
        ("count", "num_batches", lambda t: t + 10**9),
        ("weight", "body.0.bias", lambda t: t + 1e3),
    ):
        grid = LocalGrid(trusting(tmp_path / place))
        grid.spoil = lie(part, change)
        conduct(grid, own(), tmp_path / place / "run")
        lines = (tmp_path / place / "run/history.jsonl").read_text().splitlines()
        assert [json.loads(line)["refused"] for line in lines] == [[2]] * 3, place


def test_bundles_and_graphs_answer_as_the_run_does(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    config = own("fedavg")
    pipeline.run(config, tmp_path / "run")
    dataset, _ = deal(config)
    x = dataset.x[:20]
    here = fedpn.load(tmp_path / "run", 1, trust=True).predict_proba(x)
    command = ["export", str(tmp_path / "run"), "--client", "1", "--trust", "--onnx"]
    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    there = fedpn.load(tmp_path / "one", trust=True).predict_proba(x)
    np.testing.assert_allclose(there, here, atol=1e-6)
    assert types(load_file(tmp_path / "one/shared.safetensors")) == TYPES
    session = onnxruntime.InferenceSession(str(tmp_path / "one/model.onnx"))
    graph = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, {"inputs": x}), strict=True)
    )
    np.testing.assert_allclose(graph["probabilities"], here, atol=1e-4)


def test_a_run_goes_on_with_the_same_bits(tmp_path):
    whole = pipeline.run(own("apfl"), tmp_path / "whole")
    pipeline.run(own("apfl", {"rounds": 1}), tmp_path / "parts")
    assert pipeline.run(own("apfl"), tmp_path / "parts", resume=True) == whole
    ours, theirs = (load_file(tmp_path / d / "state.safetensors") for d in ("parts", "whole"))
    assert all(torch.equal(ours[name], t) for name, t in theirs.items() if "model/" in name)
