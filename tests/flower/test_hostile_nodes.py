"""Nodes that lie, through the real apps: none ends a run or owns it, each is left out by name."""

import json

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import Key
from liars import (
    LIAR,
    NODES,
    conduct,
    full,
    lying,
    nodes,
    scaled,
    settings,
    with_facts,
    with_report,
    with_tensors,
    without_tensors,
)

from fedpn.flower.app.standing import read_standing
from fedpn.flower.watch.status import read
from flower_grid import LocalGrid


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The run without the liar's uploads: what it must come to whatever the liar sends."""
    home = tmp_path_factory.mktemp("honest")
    grid = lying(home, "train", without_tensors)
    conduct(grid, settings(), home / "run")
    return read_standing(home / "run").server


def packed(content, data):
    return with_report(content, tensors=data)


def as_array(content, data):
    """An upload that goes as an array, made of any bytes."""
    array = Array("uint8", (len(data),), "numpy.ndarray", data)
    plain = dict(without_tensors(content).config_records)
    return RecordDict(plain | {"tensors": ArrayRecord({"tensors": array})})


HUGE = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
HUGE += b"{'descr': '|u1', 'fortran_order': False, 'shape': (36028797018963968,), }".ljust(118)
HEADER = b'[["model/x", "float32", [1152921504606846976]]]'
ROUNDS = {
    "not a number": lambda c: with_tensors(c, full(float("nan"))),
    "infinite": lambda c: with_tensors(c, full(float("inf"))),
    "huge": lambda c: with_tensors(c, full(1e30)),
    "a thousand times": lambda c: scaled(c, 1e3),
    "minus a thousand times": lambda c: scaled(c, -1e3),
    "one tensor huge": lambda c: scaled(c, 1e6, only="bias"),
    "another shape": lambda c: with_tensors(c, lambda n, t: t[..., None]),
    "another type": lambda c: with_tensors(c, lambda n, t: t.to(torch.float64)),
    "no tensors": without_tensors,
    "tensors that are a text": lambda c: packed(c, "model"),
    "tensors as an array of numbers": lambda c: RecordDict(
        dict(without_tensors(c).config_records)
        | {"tensors": ArrayRecord({"tensors": Array(np.ones(3))})}
    ),
    "an array of nothing": lambda c: as_array(c, b""),
    "an array that is an archive": lambda c: as_array(c, b"PK\x03\x04" + bytes(40)),
    "an array of 32 petabytes": lambda c: as_array(c, HUGE),
    "empty bytes": lambda c: packed(c, b""),
    "half a header": lambda c: packed(c, (10**6).to_bytes(8, "little") + b"[["),
    "a header of a petabyte": lambda c: packed(c, len(HEADER).to_bytes(8, "little") + HEADER),
    "no JSON": lambda c: packed(c, (4).to_bytes(8, "little") + b"\xff\xff\xff\xff"),
    "a loss of nothing": lambda c: with_report(c, loss=float("nan")),
    "a loss of 1e300": lambda c: with_report(c, loss=1e300),
    "an error of a megabyte": lambda c: with_report(c, error="x" * 10**6),
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_an_upload_that_cannot_be_does_not_count(kind, tmp_path, honest, capsys):
    conduct(lying(tmp_path, "train", ROUNDS[kind]), settings(), tmp_path / "run")
    lines = [json.loads(x) for x in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert [line["refused"] for line in lines] == [[2], [2]]
    torch.testing.assert_close(read_standing(tmp_path / "run").server, honest)
    words = capsys.readouterr().out
    assert '"2 ' in words and len(words) < 10**5


NAMELESS = {
    "no report": lambda c: RecordDict({"tensors": c.config_records["report"]}),
    "another's name": lambda c: with_report(c, name="0"),
    "a name of numbers": lambda c: RecordDict({"report": ConfigRecord({"name": 3})}),
    "nothing": lambda c: RecordDict({}),
}


@pytest.mark.parametrize("kind", NAMELESS)
def test_who_says_nothing_that_can_be_read_is_as_if_away(kind, tmp_path, honest):
    conduct(lying(tmp_path, "train", NAMELESS[kind]), settings(), tmp_path / "run")
    lines = [json.loads(x) for x in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert [line["dropped"] for line in lines] == [[2], [2]]
    torch.testing.assert_close(read_standing(tmp_path / "run").server, honest)


INTRODUCTIONS = {
    "rows of 400 digits": lambda c: with_report(c, facts=_facts(c, '"rows": 1' + "0" * 400)),
    "1e18 rows": lambda c: with_facts(c, rows=10**18),
    "a billion rows": lambda c: with_facts(c, rows=10**9),
    "minus one row": lambda c: with_facts(c, rows=-1),
    "half a row": lambda c: with_facts(c, rows=0.5),
    "true rows": lambda c: with_facts(c, rows=True),
    "other classes": lambda c: with_facts(c, classes=["a", "b"]),
    "a class twice": lambda c: with_facts(c, classes=["0"] * 10),
    "classes of control signs": lambda c: with_facts(c, classes=["\x1b[2J", "b"]),
    "a shape beyond memory": lambda c: with_facts(c, shape=[1, 2**20, 2**20]),
    "facts in facts": lambda c: with_report(c, facts="[" * 10**5),
    "another version": lambda c: with_facts(c, version="9.9.9"),
}


def _facts(content, rows):
    facts = json.loads(dict(content.config_records["report"])["facts"])
    del facts["rows"]
    return json.dumps(facts)[:-1] + f", {rows}}}"


@pytest.mark.parametrize("kind", INTRODUCTIONS)
def test_who_introduces_himself_absurdly_is_left_out(kind, tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    lie = INTRODUCTIONS[kind]
    # It comes last: whoever is first must not decide what all others are held to.
    grid.spoil = lambda k, n, c: lie(c) if (k, n) == ("query.introduce", LIAR) else c
    found = conduct(grid, settings(), tmp_path / "run", nodes=NODES - 1)
    assert found["clients"] == NODES - 1
    assert "2 " in capsys.readouterr().out


def test_the_first_to_come_does_not_decide_what_classes_there_are(tmp_path, capsys):
    grid = LocalGrid(nodes(tmp_path))
    lie = lambda c: with_facts(c, classes=["a", "b"])  # noqa: E731
    grid.spoil = lambda k, n, c: lie(c) if (k, n) == ("query.introduce", 100) else c
    conduct(grid, settings(), tmp_path / "run", nodes=NODES - 1)
    words = capsys.readouterr().out
    assert "0 cannot take part: its classes are a, b, and those of 1, 2, 3" in words


SUMS = {
    "a weight of 1e18": lambda c: with_report(c, weight=1e18),
    "a weight of two": lambda c: with_report(c, weight=2.0),
    "a weight of nothing": lambda c: with_report(c, weight=float("nan")),
    "a million times": lambda c: scaled(c, 1e6),
    "minus": lambda c: scaled(c, -1.0),
    "huge": lambda c: with_tensors(c, full(1e300)),
    "not a number": lambda c: with_tensors(c, full(float("nan"))),
    "no tensors": without_tensors,
    "half a row": lambda c: with_tensors(c, lambda n, t: t + 0.5),
}


@pytest.mark.parametrize("kind", SUMS)
def test_sums_that_cannot_be_do_not_count(kind, tmp_path, capsys):
    """A head in closed form is made of sums alone: with a liar it is as good as without."""
    config = settings("analytic")
    found = conduct(lying(tmp_path, "train.sum", SUMS[kind]), config, tmp_path / "run")
    assert found["accuracy"]["global"]["ind"] > 0.6
    assert '"2 uploaded what cannot be' in capsys.readouterr().out


FIGURES = {
    "accuracy above 1": lambda c: with_facts(c, accuracy={"personal": {"ind": 7.0}}),
    "accuracy below 0": lambda c: with_facts(c, accuracy={"personal": {"ind": -1.0}}),
    "other classes": lambda c: with_facts(c, classes=[99]),
    "other rows": lambda c: with_facts(c, rows=10**6),
    "other keys": lambda c: with_facts(c, script="<script>alert(1)</script>"),
    "a remark of a megabyte": lambda c: with_facts(c, remarks=["x" * 10**6]),
    "no accuracy": lambda c: with_facts(c, accuracy={}),
    "an accuracy alone": lambda c: with_facts(c, accuracy=0.5),
    "accuracy of somebody else": lambda c: with_facts(c, accuracy={"king": {"ind": 0.5}}),
    "no calibration": lambda c: with_facts(c, calibration=None),
    "no classes found": lambda c: with_facts(c, classes_found={}),
    "counts beyond measure": lambda c: with_facts(c, confusion=[[2**52] * 10] * 10),
}


@pytest.mark.parametrize("kind", FIGURES)
def test_figures_that_cannot_be_cost_one_node(kind, tmp_path):
    grid = lying(tmp_path, "train.personalise", FIGURES[kind])
    found = conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run")
    assert len(found["per_client"]) == NODES - 1
    assert "alert(1)" not in (tmp_path / "run/report.html").read_text()


def test_one_of_two_that_tells_other_figures_is_found_out(tmp_path):
    """Nobody is most of two: figures that come to nothing are left out first."""
    grid = LocalGrid(nodes(tmp_path, 2))
    grid.spoil = lambda k, n, c: (
        with_facts(c, accuracy={}) if (k, n) == ("train.personalise", 100) else c
    )
    found = conduct(grid, settings("fedavg", {"rounds": 1, "clients": 2}), tmp_path / "run")
    assert [client["client"] for client in found["per_client"]] == [1]


class Forgetting(LocalGrid):
    """As the SuperLink does: replies are gone once they are handed out, then they are unpacked."""

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        if any(reply.metadata.src_node_id == LIAR for reply in replies):
            raise RuntimeError("cannot be unpacked")
        return replies


def test_a_reply_that_cannot_be_unpacked_costs_its_sender_alone(tmp_path, capsys):
    grid = Forgetting(nodes(tmp_path))
    config = settings("fedavg", {"rounds": 1})
    found = conduct(grid, config, tmp_path / "run", nodes=NODES - 1, timeout=5.0)
    assert len(found["per_client"]) == NODES - 1
    assert "its answer cannot be unpacked" in capsys.readouterr().out


def test_a_masked_loss_is_a_number(tmp_path):
    def lie(content):
        if "fitres.metrics" in content.config_records:
            content.config_records["fitres.metrics"]["loss"] = 1e307
        return content

    config = settings("fedavg", {"rounds": 1, "routing": {"strangers": 0.0}})
    conduct(lying(tmp_path, "train", lie), config, tmp_path / "run", secure=True)
    (line,) = (tmp_path / "run/history.jsonl").read_text().splitlines()
    assert abs(json.loads(line)["loss"]) < 1e6


def test_who_takes_anothers_name_does_not_blind_who_watches(tmp_path):
    grid = LocalGrid(nodes(tmp_path))
    grid.nodes |= {500: dict(grid.nodes[101]), 501: dict(grid.nodes[101])}
    conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run", nodes=NODES)
    names = [node.name for node in read(tmp_path / "run").nodes]
    assert names == ["0", "1", "2", "3", "1 (2)", "1 (3)"]


def test_a_node_that_was_restarted_comes_in_once_its_old_session_is_over(tmp_path):
    """Without keys it has another number, while the old one counts as there for a minute."""
    grid, trained = LocalGrid(nodes(tmp_path)), []

    def spoil(kind, number, content):
        trained.extend([number] if kind == "train" else [])
        if len(trained) == NODES:
            grid.nodes[401] = grid.nodes[101]
        if len(trained) > 3 * NODES:
            grid.nodes.pop(101, None)
        return None if number == 101 and 401 in grid.nodes else content

    grid.spoil = spoil
    conduct(grid, settings("fedavg", {"rounds": 6}), tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run/history.jsonl").read_text().splitlines())
    assert [line["dropped"] for line in lines][-1] == []
    assert 401 in trained


def _mask(content, **changes):
    told = dict(content.config_records["secaggplus_configs"]) | changes
    kept = {n: r for n, r in content.config_records.items() if n != "secaggplus_configs"}
    return RecordDict({**kept, **content.array_records, "secaggplus_configs": ConfigRecord(told)})


MASKS = {
    Key.PUBLIC_KEY_1: [("no key", {Key.PUBLIC_KEY_1: b"none"})],
    Key.CIPHERTEXT_LIST: [("no shares", {Key.CIPHERTEXT_LIST: [], Key.DESTINATION_LIST: []})],
    Key.MASKED_PARAMETERS: [("no vectors", {Key.MASKED_PARAMETERS: [b"none"]})],
    Key.SHARE_LIST: [("no shares in the end", {Key.SHARE_LIST: [], Key.NODE_ID_LIST: []})],
}
CASES = [(key, *case) for key, cases in MASKS.items() for case in cases]


@pytest.mark.parametrize(("key", "what", "changes"), CASES, ids=[case[1] for case in CASES])
def test_who_breaks_the_masks_is_left_out_of_the_round(key, what, changes, tmp_path):
    grid, lies = LocalGrid(nodes(tmp_path)), []

    def spoil(kind, number, content):
        told = content.config_records.get("secaggplus_configs", {})
        if number != LIAR or key not in told:
            return content
        lies.append(what)
        return _mask(content, **changes)

    grid.spoil = spoil
    config = settings("fedavg", {"rounds": 1, "routing": {"strangers": 0.0}})
    found = conduct(grid, config, tmp_path / "run", secure=True)
    assert found["clients"] == NODES and lies
    server = read_standing(tmp_path / "run").server["model"]
    assert all(t.isfinite().all() and t.abs().max() < 100 for t in server.values())
