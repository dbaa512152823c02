"""The real ServerApp and ClientApp, in one process: the same algorithms as in the simulator."""

import json
import math
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats
from liars import with_facts, with_report, with_tensors, without_tensors
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

from flwr.app import ConfigRecord, Context, Message, RecordDict

import fedpn
from clinic import SITES
from clinic import rows as clinic_rows
from clinic import write as write_clinic
from fedpn.algorithms import ALGORITHMS
from fedpn.core.trees import flatten
from fedpn.data.census import (
    count_values,
    finish_recipe,
    make_recipe,
    plan,
    split_values,
    take_census,
)
from fedpn.federated.checkpoint import STATE, Journal, State
from fedpn.flower.app import records, server, whole
from fedpn.flower.app import roster as roster_module
from fedpn.flower.app.records import has_tensors, unpack
from fedpn.flower.app.server import serve
from fedpn.flower.app.server_app import app
from fedpn.flower.app.share import open_share
from fedpn.flower.app.standing import read_standing
from fedpn.flower.app.state import NodeState
from fedpn.flower.app.terms import read_terms
from fedpn.reporting import report
from fedpn.runs import pipeline
from fedpn.runs.config import resolve, to_tree
from fedpn.runs.identity import identity_of
from fedpn.runs.phases import phases_of
from fedpn.runs.prepare import deal, fingerprint, prepare
from fedpn.serving.bundle import read_about
from fedpn.serving.conform import as_array
from flower_grid import SERVER, LocalGrid, wire_bytes

NODES = 4
FACTS = {"partition", "rows", "shape", "classes", "features", "note", "raw", "version"}
SMALL = {
    "dataset": "digits",
    "clients": NODES,
    "rounds": 3,
    "data": {"partition": "dirichlet", "beta": 0.3},  # unequal clients
    "model": {"layers": 3, "dim": 6},
    "train": {"steps": 0, "epochs": 1, "batch": 64},
    "engine": {"cohort": 1},
    "routing": {"outliers": 0.2, "abstain": 0.2},
    "method": {"adapt_steps": 0, "adapt_epochs": 1},
}


def settings(algorithm="fedpn", *layers):
    return resolve([SMALL | {"algorithm": algorithm}, *layers])


def _tensors(content):
    """What a message holds, by name."""
    return flatten(unpack(content, ())) if has_tensors(content) else {}


def nodes(home, count=NODES):
    return {
        100 + i: {"partition-id": i, "num-partitions": count, "state-dir": str(home / f"node{i}")}
        for i in range(count)
    }


def terms(config, out, **changes):
    asked = {
        "config": json.dumps(to_tree(config)),
        "out": str(out),
        "resume": False,
        "nodes": NODES,
        "timeout": 0.2,
        "round-timeout": 60.0,
    }
    return asked | changes


def conduct(grid, config, out, **changes):
    """Plays a run through Flower's own ServerApp."""
    context = Context(7, SERVER, {}, RecordDict(), terms(config, out, **changes))
    app(grid, context)


def metrics(place):
    return json.loads((place / "metrics.json").read_text())


def events(capsys):
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line.split("fedpn-event: ")[1]) for line in lines if "fedpn-event" in line]


NORM, ADAM = {"model": {"norm": "batch"}}, {"method": {"optimizer": "adam", "lr": 0.001}}
TRAINED = [name for name, algorithm in ALGORITHMS.items() if algorithm.trains]
CASES = {name: (name, NORM if name == "fedbn" else {}) for name in TRAINED}
CASES |= {"fedavg-adam": ("fedavg", ADAM)}


@pytest.mark.parametrize("case", CASES)
def test_simulator_and_flower_are_the_same_federation(case, tmp_path):
    config = settings(*CASES[case])
    grid = LocalGrid(nodes(tmp_path))
    conduct(grid, config, tmp_path / "flower")
    pipeline.run(config, tmp_path / "simulated")

    ready = prepare(config)
    labels = [torch.from_numpy(ready.dataset.y[rows]) for rows in ready.federation.train]
    assert len({len(rows) for rows in labels}) == NODES  # unequal indeed
    data = fingerprint(ready.dataset)
    simulator = pipeline.simulate(config, ready, tmp_path / "simulated")
    journal = Journal(tmp_path / "simulated", identity_of(config, data).facts)
    simulated = journal.load(State({}), simulator.restore)
    standing = read_standing(tmp_path / "flower")
    assert standing.round == simulated.round == 3
    torch.testing.assert_close(standing.server, simulated.server, rtol=1e-6, atol=1e-6)
    for client in range(NODES):
        state = NodeState(tmp_path / f"node{client}", standing.run, data)
        remembered = simulator.memories[client]
        kept = state.load(3, tuple(remembered))
        torch.testing.assert_close(kept, remembered, rtol=1e-6, atol=1e-6)

    ours, theirs = (
        json.loads((tmp_path / d / "metrics.json").read_text()) for d in ("flower", "simulated")
    )
    assert ours.keys() == theirs.keys()
    rows = sum(len(rows) for rows in ready.federation.test)
    for who, accuracy in theirs["accuracy"].items():
        for kind, value in accuracy.items():
            assert ours["accuracy"][who][kind] == pytest.approx(value, abs=2 / rows)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [("analytic", {}), ("fedavg", {"head": {"kind": "ridge"}}), ("fedpn", {"head": "means"})],
)
def test_heads_in_closed_form_are_those_of_the_simulator(algorithm, changes, tmp_path):
    """The same sums, whoever adds them up; a run without rounds asks each node five times."""
    small = {"head": {"filters": 10, "fourier": 20}, "rounds": 2}
    config = settings(algorithm, small, changes)
    grid = LocalGrid(nodes(tmp_path))
    conduct(grid, config, tmp_path / "flower")
    pipeline.run(config, tmp_path / "simulated")
    from safetensors.torch import load_file

    ours, theirs = (load_file(tmp_path / d / "head.safetensors") for d in ("flower", "simulated"))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    found, expected = metrics(tmp_path / "flower"), metrics(tmp_path / "simulated")
    assert found["headline"] == expected["headline"] == "bayes"
    for who, row in expected["accuracy"].items():
        assert found["accuracy"][who] == pytest.approx(row, abs=0.01), who
    for stream, row in expected["streams"].items():
        assert found["streams"][stream] == pytest.approx(row, abs=0.02), stream
    if algorithm == "analytic":
        kinds = [kind for kind, number, _ in grid.heard if number == 100]
        assert kinds == ["query.introduce", *["train.sum"] * 5, "train.personalise"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A FedPN run, all messages of which were kept."""
    home = tmp_path_factory.mktemp("finished")
    grid = LocalGrid(nodes(home))
    conduct(grid, settings(), home / "run")
    return grid, home


SUMS = ({"moments"}, {"gate"}, {"0:weight", "0:pool", "1:weight", "1:gate"})


def test_nothing_private_leaves_a_node(finished):
    grid, _ = finished
    ready = prepare(settings())
    method, task = settings().method, ready.model.task
    own = {f"model/{name}" for name in ready.fresh if method.personal(task, name)}
    assert own  # the prior: a client's class frequencies
    kinds = [kind for kind, _, _ in grid.heard]
    assert sorted(set(kinds)) == ["query.introduce", "train", "train.personalise", "train.sum"]
    for kind, number, content in grid.heard:
        arrays = _tensors(content)
        said = json.loads(dict(content.config_records["report"])["facts"] or "{}")
        assert not own & arrays.keys()
        if kind not in ("train", "train.sum"):
            assert not arrays  # neither heads nor densities of its own, nor rows
        if kind == "query.introduce":
            assert said.keys() == FACTS
        if kind == "train.sum":
            roles = {name.partition("/")[0] for name in arrays}
            assert roles in SUMS  # for normalisation; for the gate and of held-out rows' doubts
            if roles == {"moments"}:
                assert all(a.shape == (1,) for a in arrays.values())  # over a channel
        rows = ready.federation.rows(number - 100)
        for array in arrays.values():
            assert array.shape[:1] != (len(rows),)


def test_a_run_on_flower_reads_like_any_other(finished):
    _, home = finished
    text = report.text([home / "run"])
    assert "switch" in text and f"{NODES} clients, 3 rounds" in text
    page = (home / "run/report.html").read_text()
    assert "What was learned" in page and "Who owns what" not in page
    history = [json.loads(line) for line in (home / "run/history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in history] == [1, 2, 3]
    with pytest.raises(fedpn.UserError, match="each node has its own model"):
        fedpn.load(home / "run", "0")


def test_each_node_answers_from_its_bundle_as_the_simulator_would(finished, tmp_path):
    _, home = finished
    config = settings()
    pipeline.run(config, tmp_path / "simulated")
    dataset, federation = deal(config)
    rows = np.concatenate([federation.ind(2), federation.ood(2)])[:200]
    images = dataset.x[rows][:, 0]
    there = fedpn.load(home / "node2")(images)
    here = fedpn.load(tmp_path / "simulated", 2)(images)
    assert len({answer.outcome for answer in there}) > 1
    assert (
        sum(a.outcome != b.outcome or a.guess != b.guess for a, b in zip(there, here, strict=True))
        <= 1
    )
    assert there[0].confidence == pytest.approx(here[0].confidence, abs=1e-4)


def test_memories_of_two_rounds_are_kept(finished):
    _, home = finished
    run = read_standing(home / "run").run
    kept = sorted(p.name for p in (home / "node1/runs" / run).glob("memory-*"))
    assert kept == ["memory-00000002.safetensors", "memory-00000003.safetensors"]


def own_data(home, classes=("cat", "dog", "owl")):
    """Three hospitals' files, each with some of the classes, in an order of its own."""
    rng = np.random.default_rng(0)
    grid = {}
    for i, mine in enumerate([("dog", "cat"), ("cat", "owl"), ("owl", "dog")]):
        y = rng.integers(0, 2, 90 + 10 * i)
        means = np.array([classes.index(name) for name in mine])[y]
        x = rng.normal(means[:, None] * 2.0, 1.0, (len(y), 4)).astype(np.float32)
        lines = [",".join([*map(str, row), mine[label]]) for row, label in zip(x, y, strict=True)]
        path = home / f"hospital{i}.csv"
        path.write_text("a,b,c,d,label\n" + "\n".join(lines) + "\n")
        state = str(home / f"state{i}")
        grid[200 + i] = {"name": f"hospital-{i}", "data": str(path), "state-dir": state}
    return grid


TABLE = {
    "dataset": "animals",
    "data": {"classes": ["cat", "dog", "owl"]},
    "train": {"epochs": 0, "steps": 20, "batch": 16},
    "model": {"layers": 3, "dim": 4},
}


def test_data_that_stay_where_they_are(tmp_path):
    grid = LocalGrid(own_data(tmp_path))
    switch = {"routing": {"rule": "quantiles"}}  # three rounds teach the federation little
    config = settings("fedpn", TABLE, {"method": {"adapt_epochs": 30}}, switch)
    conduct(grid, config, tmp_path / "run", nodes=3)
    found = metrics(tmp_path / "run")
    assert found["accuracy"]["local"]["ind"] > 0.7
    assert found["accuracy"]["switch"]["ood"] is None and found["routing"]["auroc"] is None
    assert [c["classes"] for c in found["per_client"]] == [None] * 3
    assert "hospital-1" in (tmp_path / "run/report.html").read_text()
    text = report.text([tmp_path / "run"])
    assert "InD" in text and not {"OOD", "Mix", "–", "oracle"} & set(text.split())
    answers = fedpn.load(tmp_path / "state1/bundle")(np.full((1, 4), 4.0, np.float32))
    assert answers[0].guess == "owl"
    for _, _, content in grid.heard:  # which labels a node has is not told
        assert b"label" not in wire_bytes(content)


def test_nodes_must_agree_on_classes(tmp_path, capsys):
    grid = LocalGrid(own_data(tmp_path))
    config = settings("fedpn", TABLE | {"data": {"classes": []}})
    with pytest.raises(RuntimeError, match="1 of 3 nodes"):
        conduct(grid, config, tmp_path / "run", nodes=3)
    assert any("data.classes" in e.get("warning", "") for e in events(capsys))


def test_columns_in_another_order_are_told_apart(tmp_path, capsys):
    """Else one hospital's pulse would be averaged with another's pressure."""
    grid = own_data(tmp_path)
    path = tmp_path / "hospital1.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("\n".join(",".join([*row[3::-1], row[4]]) for row in rows))
    with pytest.raises(RuntimeError, match="2 of 3 nodes"):
        conduct(LocalGrid(grid), settings("fedpn", TABLE), tmp_path / "first", nodes=3)
    warnings = [e["warning"] for e in events(capsys) if "warning" in e]
    assert any("its columns are d, c, b, a" in words for words in warnings)
    named = {"data": TABLE["data"] | {"features": ["a", "b", "c", "d"]}}
    conduct(LocalGrid(grid), settings("fedpn", TABLE | named), tmp_path / "second", nodes=3)
    assert fedpn.load(tmp_path / "state1").bundle.features == ("a", "b", "c", "d")


def test_nodes_that_never_come_are_named(tmp_path):
    few = nodes(tmp_path)
    del few[102]
    with pytest.raises(RuntimeError, match=r"3 of 4 nodes came .*missing: partition 2"):
        conduct(LocalGrid(few), settings(), tmp_path / "run")


def test_a_node_that_vanishes_and_one_that_comes_late(tmp_path, capsys):
    """Node 1 is away in round 2, node 3 comes after round 1; nobody's memory is lost."""
    grid = LocalGrid(nodes(tmp_path))
    late = grid.nodes.pop(103)
    rounds = []

    def spoil(kind, number, content):
        if kind == "train" and number == 100:
            rounds.append(number)
            if len(rounds) == 1:
                grid.nodes[303] = late  # under another number, as Flower gives them
        return None if kind == "train" and number == 101 and len(rounds) == 2 else content

    grid.spoil = spoil
    conduct(grid, settings("ditto"), tmp_path / "run", nodes=3)
    told = events(capsys)
    history = [json.loads(x) for x in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert [line["dropped"] for line in history] == [[], [1], []]
    assert [line["joined"] for line in history] == [3, 4, 4]
    assert read_standing(tmp_path / "run").bases == {"0": 3, "1": 3, "2": 3, "3": 3}
    assert metrics(tmp_path / "run")["clients"] == 4
    assert any("vanished" in e.get("warning", "") for e in told)


def _with(content, name, array):
    return with_tensors(content, lambda n, t: t, {name: torch.as_tensor(array)})


GARBAGE = {
    "nan": lambda c: _with(c, "model/head.0.bias", np.full(18, np.nan, np.float32)),
    "shape": lambda c: _with(c, "model/head.0.bias", np.zeros(5, np.float32)),
    "dtype": lambda c: _with(c, "model/head.0.bias", np.zeros(18, np.float64)),
    "keys": lambda c: _with(c, "model/another.config", np.zeros(5, np.float32)),
    "empty": without_tensors,
    "words": lambda c: RecordDict({"report": ConfigRecord({"nonsense": 1})}),
    "loss": lambda c: with_report(c, loss=float("nan")),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_and_named(kind, tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    bad = lambda k, n, c: GARBAGE[kind](c) if k == "train" and n == 102 else c  # noqa: E731
    grid.spoil = bad
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    line = json.loads((tmp_path / "run/history.jsonl").read_text())
    assert line["dropped" if kind == "words" else "refused"] == [2]
    assert line["loss"] is not None
    standing = read_standing(tmp_path / "run")
    assert all(t.isfinite().all() for t in standing.server["model"].values())
    assert standing.bases == {"0": 1, "1": 1, "3": 1}
    assert any(w.startswith(("2 ", "a node")) for e in events(capsys) if (w := e.get("warning")))


INTRODUCTIONS = {
    "partition": lambda c: with_facts(c, partition="abc"),
    "rows": lambda c: with_facts(c, rows=-500),
    "classes": lambda c: with_facts(c, classes=[]),
    "twin": lambda c: with_facts(with_report(c, name="1"), partition=9),
    "taken": lambda c: with_facts(c, partition=1),
    "name": lambda c: with_report(c, name=3.5),
}


@pytest.mark.parametrize("kind", INTRODUCTIONS)
def test_who_introduces_himself_wrongly_is_left_out(kind, tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = lambda k, n, c: INTRODUCTIONS[kind](c) if (k, n) == ("query.introduce", 102) else c
    config = settings("fedavg", {"rounds": 1})
    conduct(grid, config, tmp_path / "run", nodes=3)
    assert len(metrics(tmp_path / "run")["per_client"]) == 3
    assert any("warning" in e for e in events(capsys))


def _sums(content, **changes):
    changed = {f"moments/{n}": torch.tensor(v, dtype=torch.float64) for n, v in changes.items()}
    return with_tensors(content, lambda n, t: t, changed)


MOMENTS = {
    "shape": lambda c: _sums(c, total=[1.0] * 4),
    "not finite": lambda c: _sums(c, total=[float("nan")]),
    "no rows": lambda c: _sums(c, counts=[-5.0]),
    "squares": lambda c: _sums(c, squares=[-1.0]),
    "another": lambda c: _sums(c, more=[1.0]),
    "weight": lambda c: with_report(c, weight=-3.0),
    "no weight": lambda c: with_report(c, weight=float("nan")),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_sums_that_cannot_be_do_not_count(kind, tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = lambda k, n, c: MOMENTS[kind](c) if (k, n) == ("train.sum", 102) else c
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    assert any(e.get("warning", "").startswith("2 uploaded") for e in events(capsys))
    others = [i for i in range(NODES) if i != 2]
    dataset, federation = deal(settings("fedavg"))
    pixels = np.concatenate([dataset.x[federation.train[i]].ravel() for i in others])
    mean = json.loads(read_standing(tmp_path / "run").model)["blueprint"]["mean"]
    assert mean == pytest.approx([pixels.mean()])


FIGURES = {
    "no json": lambda c: with_report(c, facts="not json"),
    "nothing": lambda c: with_report(c, facts="{}"),
    "a list": lambda c: with_report(c, facts="[1]"),
    "not finite": lambda c: with_facts(c, calibration={"ece": float("nan")}),
    "words": lambda c: with_facts(c, calibration={"ece": "good"}),
}


@pytest.mark.parametrize("kind", FIGURES)
def test_figures_that_are_none_cost_one_node_not_the_run(kind, tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = lambda k, n, c: FIGURES[kind](c) if (k, n) == ("train.personalise", 102) else c
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    assert len(metrics(tmp_path / "run")["per_client"]) == 3
    told = [e["warning"] for e in events(capsys) if "warning" in e]
    assert any(text.startswith("2 has no model of its own: its figures") for text in told)


def test_nobody_answers_in_the_name_of_another(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = lambda k, n, c: with_report(c, name="0") if (k, n) == ("train", 102) else c
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    line = json.loads((tmp_path / "run/history.jsonl").read_text())
    assert line["dropped"] == [2]
    assert any("2 answered in the name of 0" in e.get("warning", "") for e in events(capsys))


def test_nodes_are_numbered_by_partition_not_by_arrival(tmp_path, monkeypatch):
    monkeypatch.setattr(roster_module, "PAUSE", 0.01)
    late = LocalGrid(nodes(tmp_path))
    first, looks = late.nodes.pop(100), []

    def spoil(kind, number, content):
        looks.append(kind)
        late.nodes.setdefault(100, first)
        return content

    late.spoil = spoil
    config = settings("fedavg", {"rounds": 2, "train": {"join": 0.5}})
    conduct(late, config, tmp_path / "late", timeout=5.0)
    pipeline.run(config, tmp_path / "simulated")
    rows = [[c["rows"] for c in metrics(tmp_path / d)["per_client"]] for d in ("late", "simulated")]
    assert rows[0] == rows[1]
    told = [(tmp_path / d / "history.jsonl").read_text() for d in ("late", "simulated")]
    losses = [[json.loads(line)["loss"] for line in text.splitlines()] for text in told]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5), "the same two join in each round"


def test_a_run_may_go_on_with_fewer_nodes(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    del grid.nodes[103]
    longer = settings("fedavg", {"rounds": 2})
    with pytest.raises(RuntimeError, match=r"3 of 4 nodes came .*missing: 3"):
        conduct(grid, longer, tmp_path / "run", resume=True)
    conduct(grid, longer, tmp_path / "run", resume=True, nodes=3)
    assert any("goes on without 3" in e.get("warning", "") for e in events(capsys))
    assert read_standing(tmp_path / "run").round == 2


def test_what_is_wrong_with_private_files_stays_in_the_nodes_log(tmp_path, capfd):
    grid = own_data(tmp_path)
    path = tmp_path / "hospital1.csv"
    path.write_text("a,b,c,d,label\n1,2,3,4,Jane Doe\n")
    with pytest.raises(RuntimeError, match="2 of 3 nodes"):
        conduct(LocalGrid(grid), settings("fedpn", TABLE), tmp_path / "run", nodes=3)
    said = capfd.readouterr()
    assert "Jane Doe" in said.err
    assert "Jane Doe" not in said.out and "hospital1.csv" not in said.out
    assert "its log tells why" in said.out


def test_a_failure_of_ours_on_a_node_is_not_spelled_out(tmp_path, capfd, monkeypatch):
    def broken(desk, server):
        raise ValueError("row 7 holds Jane Doe")

    monkeypatch.setattr("fedpn.flower.app.client.play", broken)
    with pytest.raises(RuntimeError, match="no valid upload"):
        conduct(LocalGrid(nodes(tmp_path)), settings("fedavg", {"rounds": 1}), tmp_path / "run")
    said = capfd.readouterr()
    assert "ValueError; its log tells more" in said.out and "Jane Doe" not in said.out
    assert "Jane Doe" in said.err


def test_a_node_that_is_lost_while_sums_are_asked_for_is_waited_for(tmp_path):
    """Sums are asked for once: a gate that lacked its rows would lack them for good."""
    config = settings("fedavg", {"rounds": 1})
    grid, lost = LocalGrid(nodes(tmp_path)), []

    def vanish(kind, number, content):
        if kind == "train.sum" and number == 101 and len(lost) < 2:
            lost.append(number)
            return None
        return content

    grid.spoil = vanish
    conduct(grid, config, tmp_path / "flower")
    pipeline.run(config, tmp_path / "simulated")
    ours, theirs = (load_file(tmp_path / d / "gate.safetensors") for d in ("flower", "simulated"))
    assert len(lost) == 2
    assert torch.equal(ours["fitted/rows"], theirs["fitted/rows"])
    torch.testing.assert_close(ours["limit"], theirs["limit"], rtol=1e-3, atol=0)


def test_sums_without_a_node_that_is_gone_are_told(tmp_path, capsys):
    grid, heard = LocalGrid(nodes(tmp_path)), []

    def leave(kind, number, content):
        heard.append(kind)
        if kind == "train" and number == 101:
            del grid.nodes[101]  # for good
        return content

    grid.spoil = leave
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run", nodes=3)
    told = [e.get("warning", "") for e in events(capsys)]
    assert any("1 is away: 'look at rows' is done without its rows" in text for text in told)
    assert "3 of 4 nodes are here: 0, 2, 3; missing: 1" in told


def test_a_mute_node_is_not_asked_for_ever(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    asked = []

    def mute(kind, number, content):
        if kind == "query.introduce" and number == 103:
            asked.append(number)
            return None
        return content

    grid.spoil = mute
    conduct(grid, settings("fedavg", {"rounds": 12}), tmp_path / "run", nodes=3)
    assert len(asked) == roster_module.ASKED
    words = f"asked {roster_module.ASKED} times"
    assert any(words in e.get("warning", "") for e in events(capsys))


def test_a_node_that_is_slow_to_tell_its_name_is_waited_for(tmp_path, monkeypatch):
    """Waiting goes by progress: it is there and is asked again, though the time is over."""
    monkeypatch.setattr(roster_module, "PAUSE", 0.01)
    grid, asked = LocalGrid(nodes(tmp_path)), []

    def slow(kind, number, content):
        if kind == "query.introduce" and number == 103 and len(asked) < roster_module.ASKED - 1:
            asked.append(number)
            return None
        return content

    grid.spoil = slow
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run", timeout=0.0)
    assert len(asked) == roster_module.ASKED - 1
    assert len(metrics(tmp_path / "run")["per_client"]) == 4


def test_waiting_tells_who_is_there_and_who_is_not(tmp_path, monkeypatch, capsys):
    """One comes late, one is slow to tell its name, one never comes."""
    monkeypatch.setattr(roster_module, "PAUSE", 0.01)
    grid, asked = LocalGrid(nodes(tmp_path)), []
    late = {103: grid.nodes.pop(103)}

    def slow(kind, number, content):
        if kind == "query.introduce" and number == 102 and len(asked) < 2:
            asked.append(number)
            return None
        grid.nodes.update(late)
        return content

    grid.spoil = slow
    with pytest.raises(RuntimeError, match=r"4 of 5 nodes came .*\(0, 1, 3, 2\)"):
        conduct(grid, settings("fedavg"), tmp_path / "run", nodes=5, timeout=0.05)
    told = [e["warning"] for e in events(capsys) if "are here" in e.get("warning", "")]
    unnamed = "one is connected and has not told its name yet, asked"
    first = f"2 of 5 nodes are here: 0, 1; {unnamed} once; {unnamed} 0 times; 1 more to come"
    assert told[0] == first
    assert told[1] == f"3 of 5 nodes are here: 0, 1, 3; {unnamed} 2 times; 1 more to come"
    assert told[2:] == ["4 of 5 nodes are here: 0, 1, 3, 2; 1 more to come"]


def test_the_same_is_told_again_after_a_while(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(roster_module, "PAUSE", 0.01)
    monkeypatch.setattr(roster_module, "TOLD", 0.2)
    grid = LocalGrid(nodes(tmp_path))
    with pytest.raises(RuntimeError, match="4 of 5 nodes came"):
        conduct(grid, settings("fedavg"), tmp_path / "run", nodes=5, timeout=1.0)
    told = [e["warning"] for e in events(capsys) if "are here" in e.get("warning", "")]
    assert len(set(told)) == 1
    assert 2 <= len(told) <= 6


def test_when_all_fail_the_run_fails(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = lambda kind, number, content: None if kind == "train" else content
    with pytest.raises(RuntimeError, match="no valid upload"):
        conduct(grid, settings(), tmp_path / "run")
    assert events(capsys)[-1]["status"] == 1


@pytest.mark.parametrize("name", ["fedpn", "ditto"])
def test_a_server_that_was_killed_goes_on_where_it_was(name, tmp_path):
    """The server dies after the nodes trained in round 2 and before it could count it."""
    config = settings(name)
    grid = LocalGrid(nodes(tmp_path / "a"))
    conduct(grid, config, tmp_path / "whole")

    grid = LocalGrid(nodes(tmp_path / "b"))
    uploads = []

    def die(kind, number, content):
        uploads.append(kind)
        if uploads.count("train") == 7:
            raise KeyboardInterrupt
        return content

    grid.spoil = die
    with pytest.raises(KeyboardInterrupt):
        conduct(grid, config, tmp_path / "cut")
    assert read_standing(tmp_path / "cut").round == 1
    grid = LocalGrid({n + 50: node for n, node in nodes(tmp_path / "b").items()})
    conduct(grid, config, tmp_path / "cut", resume=True)
    ours, theirs = ((tmp_path / d / "metrics.json").read_bytes() for d in ("cut", "whole"))
    assert ours == theirs
    whole, cut = read_standing(tmp_path / "whole"), read_standing(tmp_path / "cut")
    torch.testing.assert_close(cut.server, whole.server, rtol=0, atol=0)
    with pytest.raises(fedpn.UserError, match="only rounds may change"):
        conduct(grid, settings(name, {"seed": 1}), tmp_path / "cut", resume=True)


def test_a_node_that_is_away_in_the_end_is_waited_for(tmp_path):
    grid = LocalGrid(nodes(tmp_path))
    away = []

    def spoil(kind, number, content):
        if kind == "train.personalise" and number == 101 and not away:
            away.append(grid.nodes.pop(101))
            grid.nodes[401] = away[0]
            return None
        return content

    grid.spoil = spoil
    conduct(grid, settings(), tmp_path / "run", timeout=5.0)
    assert len(metrics(tmp_path / "run")["per_client"]) == NODES
    assert (tmp_path / "node1/bundle/bundle.json").exists()


def test_a_node_with_other_data_or_a_lost_memory_says_so(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))

    def lose(kind, number, content):
        if kind == "train" and number == 103:
            for path in (tmp_path / "node3").rglob("memory-*"):
                path.unlink()
        return content

    grid.spoil = lose
    conduct(grid, settings("ditto"), tmp_path / "run")
    told = [e["warning"] for e in events(capsys) if "warning" in e]
    assert any("3 failed: the memory of round 1 is lost" in text for text in told)
    assert len(metrics(tmp_path / "run")["per_client"]) == 3


@pytest.mark.parametrize("rule", ["median", "krum", "private"])
def test_robust_and_private_means_are_those_of_the_simulator(rule, tmp_path):
    aggregation = {"rule": rule, "repeatable": True}
    config = settings(
        "fedavg",
        {"rounds": 2, "aggregation": aggregation, "method": {"optimizer_state": "reset"}},
    )
    conduct(LocalGrid(nodes(tmp_path)), config, tmp_path / "run")
    pipeline.run(config, tmp_path / "simulated")
    from safetensors.torch import load_file

    ours, theirs = (load_file(tmp_path / d / "shared.safetensors") for d in ("run", "simulated"))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    if rule == "private":
        assert metrics(tmp_path / "run")["privacy"]["epsilon"] is None  # noise from the seed


def test_noise_on_flower_cannot_be_drawn_again(tmp_path):
    config = settings(
        "fedavg",
        {"rounds": 1, "aggregation": {"rule": "private"}, "method": {"optimizer_state": "reset"}},
    )
    books = []
    for place in ("a", "b"):
        conduct(LocalGrid(nodes(tmp_path / place)), config, tmp_path / place / "run")
        assert metrics(tmp_path / place / "run")["privacy"]["epsilon"] > 0
        bundle = next((tmp_path / place).glob("**/bundle/bundle.json"))
        assert "Differential privacy: ε = " in bundle.read_text()
        books.append(read_standing(tmp_path / place / "run").server["model"])
    assert any((books[0][name] != books[1][name]).any() for name in books[0])


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"partition-id": 0, "num-partitions": 4}, "state-dir"),
        ({"partition-id": 4, "num-partitions": 4, "state-dir": "s"}, "from 0 to 3"),
        ({"state-dir": "s"}, "data=PATH"),
        ({"data": "/nowhere/x.csv", "name": "n", "state-dir": "s"}, "its log tells why"),
        ({"data": "x.csv", "state-dir": "s"}, "its log tells why"),
    ],
)
def test_a_node_with_wrong_settings_is_told(node, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="0 of 1 nodes"):
        conduct(LocalGrid({5: node}), settings(), tmp_path / "run", nodes=1)
    assert any(told in e.get("warning", "") for e in events(capsys))


def test_wrong_terms_are_the_users_mistake(tmp_path):
    asked = terms(settings(), tmp_path / "run")
    with pytest.raises(fedpn.UserError, match="absolute"):
        read_terms(asked | {"out": "runs/x"})
    with pytest.raises(fedpn.UserError, match="at least 1"):
        read_terms(asked | {"nodes": 0})
    with pytest.raises(fedpn.UserError, match="cannot be read"):
        read_terms(asked | {"config": "!!"})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/x").touch()
    with pytest.raises(fedpn.UserError, match="not empty"):
        serve(LocalGrid({}), read_terms(asked), lambda event: None)


MASKED = {name: (name, {}) for name in ("fedpn", "scaffold", "fedavg", "fedbabu")}
KEEPING = {"method": ADAM["method"] | {"optimizer_state": "keep"}}
MASKED |= {"fedavg-norm": ("fedavg", NORM), "fedavg-adam": ("fedavg", KEEPING)}


@pytest.mark.parametrize("case", MASKED)
def test_masked_uploads_give_the_same_sum(case, tmp_path):
    name, changes = MASKED[case]
    rounds = 1  # masks round at random, and a second round makes much of a little
    config = settings(name, {"rounds": rounds} | changes)
    conduct(LocalGrid(nodes(tmp_path / "a")), config, tmp_path / "plain")
    grid = LocalGrid(nodes(tmp_path / "b"))
    conduct(grid, config, tmp_path / "masked", secure=True)
    plain, masked = read_standing(tmp_path / "plain"), read_standing(tmp_path / "masked")
    torch.testing.assert_close(masked.server, plain.server, rtol=1e-4, atol=1e-5)
    assert masked.bases == plain.bases
    turns = [p for p in phases_of(config) if p.sums and not p.remembers]
    asked = (rounds + 1 + len(turns)) * 4  # four a round, for normalisation and for each sum
    assert [k for k, _, _ in grid.heard].count("train") == asked * NODES


def test_the_server_sees_only_masked_vectors(tmp_path):
    config = settings("fedavg", {"rounds": 1})
    grid = LocalGrid(nodes(tmp_path / "b"))
    conduct(grid, config, tmp_path / "masked", secure=True)
    plain = LocalGrid(nodes(tmp_path / "a"))
    conduct(plain, config, tmp_path / "plain")
    from flwr.common import bytes_to_ndarray

    seen = {}
    for kind, number, content in grid.heard:
        assert not has_tensors(content)  # all is masked
        for record in content.config_records.values():
            if kind == "train" and "masked_params" in record:
                found = [bytes_to_ndarray(b) for b in record["masked_params"]]
                if len(found) > 5:  # of the round; sums come before it and later
                    seen.setdefault(number, found)
    uploads = {n: _tensors(c) for k, n, c in plain.heard if k == "train"}
    assert seen.keys() == uploads.keys()
    for number, vectors in seen.items():
        flat = np.concatenate([v.ravel() for v in vectors[1:]]).astype(np.float64) / 2**32
        true = np.concatenate([a.numpy().ravel() for a in uploads[number].values()])
        assert flat.size == true.size
        assert abs(flat.mean() - 0.5) < 0.01 and abs(flat.var() - 1 / 12) < 0.005  # even
        assert abs(np.corrcoef(flat, true)[0, 1]) < 0.05


CLOSED = {"rounds": 0, "head": {"kind": "ridge", "filters": 8, "fourier": 15}}


@pytest.mark.parametrize("features", ["inputs", "encoder"])
def test_masked_sums_of_a_head_are_those_in_clear(features, tmp_path):
    config = settings("analytic", CLOSED | {"head": CLOSED["head"] | {"features": features}})
    conduct(LocalGrid(nodes(tmp_path / "a")), config, tmp_path / "plain")
    grid = LocalGrid({n: node | {"secure": True} for n, node in nodes(tmp_path / "b").items()})
    conduct(grid, config, tmp_path / "masked", secure=True)
    plain, masked = (load_file(tmp_path / d / "head.safetensors") for d in ("plain", "masked"))
    assert plain.keys() == masked.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(masked[name], tensor, rtol=1e-5, atol=1e-6)
    asked = [kind for kind, _, _ in grid.heard]
    assert asked.count("train") == 5 * 4 * NODES  # normalise, survey, gram, choose, pool
    for _, _, content in grid.heard:
        assert not has_tensors(content)


def test_a_node_that_vanishes_leaves_the_masked_sums_of_the_others(tmp_path):
    grid, told = LocalGrid(nodes(tmp_path)), []

    def spoil(kind, number, content):
        told.append((kind, number))
        if kind == "train" and number == 101 and told.count(("train", 101)) == 7:
            return None  # of the survey, after it shared its keys
        return content

    grid.spoil = spoil
    conduct(grid, settings("analytic", CLOSED), tmp_path / "run", secure=True)
    head = load_file(tmp_path / "run/head.safetensors")
    counts = np.zeros(10)
    for number, node in nodes(tmp_path / "y").items():
        if number != 101:
            share = open_share(node, settings("analytic", CLOSED), tmp_path)
            counts += np.bincount(share.dataset.y[share.rows], minlength=10)
    np.testing.assert_array_equal(head["counts"], counts)


@hypothesis.settings(deadline=None)
@given(arrays(np.float64, (5, 7), elements=floats(-(2.0**33), 2.0**33)))
def test_digits_add_up_exactly(values):
    digits = whole.to_digits(values)
    assert (digits == np.round(digits)).all() and digits.min() >= 0 and digits.max() <= whole.DIGIT
    mean = whole.to_range(digits, 8.0).mean(1)
    found = whole.from_digits(whole.from_mean(mean, 5, 8.0), 5)
    exact = np.array([math.fsum(column) for column in values.T])
    rounding = 1e-15 * np.abs(values).sum(0)  # of float64, where large numbers cancel
    assert (np.abs(found - exact) <= 5 * 2.0**-37 + rounding).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, 2e10])
def test_a_sum_beyond_what_masks_hold_is_refused(value):
    with pytest.raises(fedpn.UserError, match="larger than"):
        whole.to_digits(np.array([value]))


def some(grid, *numbers):
    return LocalGrid({number: grid[number] for number in numbers})


def test_nodes_join_a_finished_federation_and_leave_it(tmp_path):
    """One message each for the sums, one for the models; the head is that of those who are in."""
    config, all_of = settings("analytic", CLOSED), nodes(tmp_path / "nodes")
    conduct(some(all_of, 100, 101, 102), config, tmp_path / "three", nodes=3)
    grid = some(all_of, 101, 103)  # one who is known, and a newcomer
    base = str(tmp_path / "three")
    conduct(grid, config, tmp_path / "four", nodes=2, base=base)
    assert [k for k, n, _ in grid.heard if n == 103][1:] == ["train.sum", "train.personalise"]
    assert [k for k, n, _ in grid.heard if n == 101] == ["query.introduce"]
    assert metrics(tmp_path / "four")["clients"] == 1
    assert fedpn.load(tmp_path / "nodes/node3").bundle.client == "3"

    again = some(all_of, 100, 101, 103)
    base = str(tmp_path / "four")
    conduct(again, config, tmp_path / "left", nodes=3, base=base, leaves="3")
    asked = {n: [k for k, m, _ in again.heard if m == n] for n in (100, 101, 103)}
    assert asked[103] == ["query.introduce", "train.sum"]
    assert asked[100] == asked[101] == ["query.introduce", "train.personalise"]
    three, four, left = (
        load_file(tmp_path / d / "server.safetensors") for d in ("three", "four", "left")
    )
    assert (three["head/matrix"] != four["head/matrix"]).any()
    for name, tensor in three.items():
        torch.testing.assert_close(left[name], tensor, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("cut", [KeyboardInterrupt, OSError(28, "full")])
def test_a_change_of_a_federation_is_published_whole_or_not_at_all(cut, tmp_path, monkeypatch):
    """What was left half made went on by --resume as a federation of the newcomer alone."""
    config, all_of = settings("analytic", CLOSED), nodes(tmp_path / "nodes")
    three, four = tmp_path / "three", tmp_path / "four"
    conduct(some(all_of, 100, 101, 102), config, three, nodes=3)
    before = {path.name: path.read_bytes() for path in three.iterdir()}

    def fail(*given):
        raise cut

    with monkeypatch.context() as patch:
        patch.setattr(server, "write_models", fail)
        with pytest.raises((KeyboardInterrupt, OSError)):
            conduct(some(all_of, 101, 103), config, four, nodes=2, base=str(three))
    assert {path.name for path in tmp_path.iterdir()} == {"nodes", "three"}
    assert {path.name: path.read_bytes() for path in three.iterdir()} == before
    conduct(some(all_of, 101, 103), config, four, nodes=2, base=str(three))
    status = json.loads((four / "status.json").read_text())
    assert (status["ended"], status["name"]) == ("finished", "four")
    with pytest.raises(fedpn.UserError, match="a run of Flower with --base, not of Flower"):
        conduct(some(all_of, 101, 103), config, four, nodes=2, resume=True)


def test_a_run_on_flower_goes_on_as_itself_alone(tmp_path):
    """With a checkpoint of another rate, or a config that was edited, it is refused."""
    grid = LocalGrid(nodes(tmp_path / "nodes"))
    config, faster = (settings("fedavg", {"rounds": 1, "fedavg": {"lr": r}}) for r in (0.02, 0.06))
    run, other = tmp_path / "run", tmp_path / "other"
    conduct(grid, config, run)
    conduct(LocalGrid(nodes(tmp_path / "others")), faster, other)
    longer = replace(config, rounds=2)
    kept = (run / STATE).read_bytes()
    (run / STATE).write_bytes((other / STATE).read_bytes())
    with pytest.raises(fedpn.UserError, match=r"fedavg.lr was 0.06 and is now 0.02"):
        conduct(grid, longer, run, resume=True)
    (run / STATE).write_bytes(kept)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("lr = 0.02", "lr = 0.06"))
    with pytest.raises(fedpn.UserError, match=r"fedavg.lr was 0.02 and is now 0.06"):
        conduct(grid, replace(faster, rounds=2), run, resume=True)
    (run / "config.toml").write_text(text)
    conduct(grid, longer, run, resume=True)
    assert metrics(run)["rounds"] == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": "{three}"}, "no node is new to it"),
        ({"base": "{three}", "leaves": "7"}, "7 is away"),
        ({"base": "/nowhere"}, "no finished run"),
        ({"base": "runs/x"}, "absolute path"),
        ({"leaves": "1"}, "needs --base"),
    ],
)
def test_mistakes_about_coming_and_going_are_told(changes, words, tmp_path):
    config, all_of = settings("analytic", CLOSED), nodes(tmp_path / "nodes")
    conduct(some(all_of, 100, 101), config, tmp_path / "three", nodes=2)
    told = {k: v.format(three=tmp_path / "three") for k, v in changes.items()}
    with pytest.raises(fedpn.UserError, match=words):
        conduct(some(all_of, 100, 101), config, tmp_path / "out", nodes=2, **told)


def test_a_node_that_vanishes_under_its_mask_is_made_up_for(tmp_path):
    grid, told = LocalGrid(nodes(tmp_path)), []

    def spoil(kind, number, content):
        told.append((kind, number))
        if kind == "train" and number == 101 and told.count(("train", 101)) == 7:
            return None  # after it shared its keys, before its vector came
        return content

    grid.spoil = spoil
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run", secure=True)
    line = json.loads((tmp_path / "run/history.jsonl").read_text())
    assert line["dropped"] == [1] and line["loss"] is not None
    assert read_standing(tmp_path / "run").bases == {"0": 1, "2": 1, "3": 1}

    others = LocalGrid(nodes(tmp_path / "x"))
    others.spoil = lambda kind, number, c: None if (kind, number) == ("train", 101) else c
    conduct(others, settings("fedavg", {"rounds": 1}), tmp_path / "plain")
    masked, plain = read_standing(tmp_path / "run"), read_standing(tmp_path / "plain")
    torch.testing.assert_close(masked.server, plain.server, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{"aggregation": {"rule": "median"}}, {"faults": {"max_norm": 1.0}}]
)
def test_what_must_see_single_uploads_cannot_be_secure(changes, tmp_path):
    asked = terms(settings("fedavg", changes), tmp_path / "run")
    with pytest.raises(fedpn.UserError, match="must see single uploads"):
        read_terms(asked | {"secure": True})
    read_terms(asked)


def test_moments_too_small_for_masks_are_refused(tmp_path):
    asked = terms(settings("fedavg", ADAM), tmp_path / "run")
    with pytest.raises(fedpn.UserError, match="Adam's moments"):
        read_terms(asked | {"secure": True})


def test_one_node_alone_has_no_mask(tmp_path):
    asked = terms(settings("fedavg"), tmp_path / "run")
    with pytest.raises(fedpn.UserError, match="would hide nothing"):
        read_terms(asked | {"secure": True, "nodes": 1})


@pytest.mark.parametrize(("threshold", "shares"), [(1, 4), (2, 4), (1, 1)])
def test_a_wary_node_refuses_masks_that_few_could_take_off(threshold, shares, tmp_path):
    """A server chooses these numbers, and one that lies would choose small ones."""
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage

    grid = LocalGrid({n: node | {"secure": True} for n, node in nodes(tmp_path).items()})
    terms = {Key.SAMPLE_NUMBER: 4, Key.SHARE_NUMBER: shares, Key.THRESHOLD: threshold}
    ranges = {Key.CLIPPING_RANGE: 8.0, Key.TARGET_RANGE: 2**20, Key.MOD_RANGE: 2**32}
    asked = terms | ranges | {Key.STAGE: Stage.SETUP, Key.MAX_WEIGHT: 100.0}
    content = RecordDict({"secaggplus_configs": ConfigRecord(asked)})
    message = Message(content, dst_node_id=101, message_type="train")
    with pytest.raises(fedpn.UserError, match="protect nobody"):
        grid.send_and_receive([message])


def test_a_move_beyond_what_masks_carry_is_not_clipped_in_silence():
    from fedpn.flower.app.secure import maskable

    for value in (9.0, float("nan")):
        with pytest.raises(fedpn.UserError, match="moved further than 8"):
            maskable({"w": torch.tensor([value])}, (), rows=10, loss=0.0)


def test_a_wary_node_uploads_under_a_mask_only(tmp_path, capsys):
    grid = LocalGrid({n: node | {"secure": True} for n, node in nodes(tmp_path).items()})
    with pytest.raises(RuntimeError, match="no valid upload"):
        conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    assert any("under a mask only" in e.get("warning", "") for e in events(capsys))
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "masked", secure=True)


def test_a_node_goes_on_with_its_own_data_alone(tmp_path):
    NodeState(tmp_path, "r", "these").save(1, {"model": {"w": torch.ones(2)}}, 0)
    with pytest.raises(fedpn.UserError, match="not those with which this node began"):
        NodeState(tmp_path, "r", "others").load(1, ("model",))


def test_a_memory_is_kept_while_the_server_counts_on_it(tmp_path):
    """Replies were lost twice running: the round that counted last is still the first."""
    state = NodeState(tmp_path, "r", "data")
    for round_ in (1, 2, 3):
        state.save(round_, {"model": {"w": torch.full((2,), float(round_))}}, min(1, round_ - 1))
    assert state.load(1, ("model",))["model"]["w"].tolist() == [1.0, 1.0]
    assert state.load(3, ("model",))["model"]["w"].tolist() == [3.0, 3.0]
    with pytest.raises(fedpn.UserError, match="memory of round 2 is lost"):
        state.load(2, ("model",))


def clinics(home):
    """Three hospitals' tables, each written in its own way; one has no gap at all."""
    grid = {}
    for i, site in enumerate(SITES[:3]):
        table = [row for row in clinic_rows(900, seed=4) if row["Klinik"] == site]
        for row in table:
            del row["Klinik"]
            if i == 1:  # as in America
                day, month, year = row["Aufnahme"].split(".")
                row["Aufnahme"] = f"{month}/{day}/{year}"
                row["Raucher"] = {"ja": "TRUE", "nein": "FALSE", "": ""}[row["Raucher"]]
                for name in ("CRP", "Blutdruck", "Kosten"):
                    row[name] = str(row[name]).translate(str.maketrans(".,", ",."))
        write_clinic(home / f"clinic{i}.csv", table, ("latin-1", "utf-8", "utf-16")[i])
        state = str(home / f"state{i}")
        grid[300 + i] = {"name": site, "data": str(home / f"clinic{i}.csv"), "state-dir": state}
    return grid


CLINIC = {"data": {"classes": ["gesund", "krank"], "label": "Diagnose"}, "head": {"fourier": 50}}


def test_messy_tables_learn_a_recipe_together(tmp_path, capfd):
    grid = LocalGrid(clinics(tmp_path))
    config = settings("analytic", CLINIC | {"dataset": "clinics"})
    conduct(grid, config, tmp_path / "run", nodes=3)
    # The same sums as of the pooled training rows.
    nodes = grid.nodes.values()
    shares = [open_share(node, config, Path(node["state-dir"])) for node in nodes]
    cells = np.concatenate([share.dataset.x[share.rows] for share in shares])
    names = shares[0].dataset.features
    census = take_census(cells)
    known = plan(census, names)
    pooled = make_recipe(names, census, known, count_values(cells, known))
    pooled = finish_recipe(pooled, split_values(cells, names, pooled))
    ours = read_about(tmp_path / "run").recipe
    assert [c.values for c in ours.columns] == [c.values for c in pooled.columns]
    assert [c.fill for c in ours.columns] == pytest.approx([c.fill for c in pooled.columns])
    assert {c.name: c.kind for c in ours.columns}["Raucher"] == "boolean"
    # Each node knows what its values are called, and how it writes; the server does not.
    ward = ours.names.index("Station")
    assert ours.columns[ward].names == ()
    states = [fedpn.load(tmp_path / f"state{i}/bundle").bundle.about.recipe for i in range(3)]
    assert "Innere" in states[0].columns[ward].names
    crp = ours.names.index("CRP")
    assert [state.columns[crp].decimal for state in states] == [",", ".", ","]
    said = b"".join(wire_bytes(content) for _, _, content in [*grid.sent, *grid.heard])
    for private in ("Innere", "siehe Akte", "clinic0.csv", "P100001"):
        assert private.encode() not in said
    assert "<5" not in capfd.readouterr().out


def test_one_way_of_writing_or_another_gives_the_same_answer(tmp_path):
    grid = LocalGrid(clinics(tmp_path))
    conduct(grid, settings("analytic", CLINIC | {"dataset": "c"}), tmp_path / "run", nodes=3)
    told = {"CRP": ("12,5", "12.5"), "Aufnahme": ("03.04.2023", "04/03/2023")}
    same = {"Alter": "61", "Blutdruck": "", "Station": "Innere", "Raucher": "ja", "Dosis": 2}
    same |= {"Kosten": "900", "Nr": 1, "Patient": "", "Bemerkung": "", "Land": ""}
    predictors = [fedpn.load(tmp_path / f"state{i}/bundle") for i in range(2)]
    rows = [
        as_array([same | {name: ways[i] for name, ways in told.items()}], predictor.bundle)
        for i, predictor in enumerate(predictors)
    ]
    np.testing.assert_array_equal(rows[0], rows[1])


def test_the_sums_of_a_head_go_back_only_where_they_are_read(tmp_path):
    grid = LocalGrid(nodes(tmp_path))
    told = []
    serve(grid, read_terms(terms(settings("analytic"), tmp_path / "run")), told.append)
    sent = {kind: _tensors(content) for kind, _, content in grid.sent}
    assert any(name.startswith("sums/") for name in sent["train.personalise"])
    sums = [_tensors(content) for kind, _, content in grid.sent if kind == "train.sum"]
    assert not any(name.startswith("sums/") for tensors in sums for name in tensors)
    phases = [event["phase"] for event in told if "phase" in event]
    assert phases[0] == "federate" and "pool" in phases and phases[-1] == "personalise"


def test_tensors_of_many_megabytes_travel_as_an_array(monkeypatch):
    report, slots = records.Report("a"), {"model": {"w": torch.arange(6.0)}}
    small = records.pack_report(report, slots)
    monkeypatch.setattr(records, "LARGE", 8)
    large = records.pack_report(report, slots)
    assert not small.array_records and large.array_records
    for content in (small, large):
        assert has_tensors(content) and records.read_report(content) == report
        torch.testing.assert_close(unpack(content, ("model",)), slots)
