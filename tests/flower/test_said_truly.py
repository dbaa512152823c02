"""docs/flower.md says what a server learns in each mode: held to what is in real messages."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from liars import conduct, settings

from fedpn.flower.app.records import has_tensors
from flower_grid import LocalGrid, wire_bytes

DOCS = Path(__file__).parents[2] / "docs/flower.md"
CLASSES = ["ill", "well"]
HEADING = "of a node, the server learns"


def table():
    """The rows of the table: what is learned -> what each mode's cell says."""
    text = DOCS.read_text(encoding="utf-8")
    lines = text[text.index(f"| {HEADING}") :].split("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def hospitals(home):
    grid = {}
    for i in range(3):
        x = np.random.default_rng(i).normal(size=(60, 2)).astype(np.float32)
        lines = [f"{a!r},{b!r},{CLASSES[int(a > 0)]}" for a, b in x.tolist()]
        (home / f"h{i}.csv").write_text("pulse,pressure,label\n" + "\n".join(lines) + "\n")
        state = str(home / f"state{i}")
        grid[100 + i] = {"name": f"anna-{i}", "data": str(home / f"h{i}.csv"), "state-dir": state}
    return grid


@pytest.fixture(scope="module", params=["plain", "`--secure`"])
def heard(request, tmp_path_factory):
    """All that a server hears in a mode, of a run with rounds and of one in closed form."""
    home, said = tmp_path_factory.mktemp("mode"), []
    data = {"classes": CLASSES, "limit": 0, "partition": "auto"}
    for algorithm in ("fedavg", "analytic"):
        place = home / algorithm
        place.mkdir()
        grid = LocalGrid(hospitals(place))
        config = settings(algorithm, {"dataset": "clinic", "data": data, "rounds": 1})
        conduct(grid, config, place / "run", secure=request.param != "plain")
        said += grid.heard
    return request.param, home / "fedavg", said


def _facts(said, kind):
    reports = [dict(c.config_records["report"]) for k, _, c in said if k == kind]
    return [json.loads(report["facts"]) for report in reports]


def _in_clear(said, kind):
    return any(k == kind and has_tensors(c) for k, _, c in said)


def _holds_a_row(said, home):
    wires = b"".join(wire_bytes(content) for _, _, content in said)
    line = (home / "h0.csv").read_text().splitlines()[1]
    row = np.array([float(cell) for cell in line.split(",")[:2]])
    forms = [line.encode(), *(row.astype(kind).tobytes() for kind in (np.float32, np.float64))]
    return any(form in wires for form in forms)


LEARNED = {
    "its name": lambda said, home: all(f["rows"] for f in _facts(said, "query.introduce")),
    "names of": lambda said, home: b"pressure" in b"".join(wire_bytes(c) for _, _, c in said),
    "its own sums": lambda said, home: _in_clear(said, "train.sum"),
    "its own move": lambda said, home: _in_clear(said, "train"),
    "its loss": lambda said, home: any(
        b"loss" in wire_bytes(c) for k, _, c in said if k == "train"
    ),
    "figures": lambda said, home: bool(_facts(said, "train.personalise")[0]["accuracy"]),
    "a row": _holds_a_row,
}


def test_the_table_has_these_rows():
    assert len(table()) == len(LEARNED)
    for start in LEARNED:
        assert sum(row.startswith(start) for row in table()) == 1, start


@pytest.mark.parametrize("start", LEARNED)
def test_what_a_server_learns_is_what_the_docs_say(start, heard):
    mode, home, said = heard
    row = next(row for row in table() if row.startswith(start))
    claim = re.match(r"yes|no", table()[row][mode])
    assert claim, f"{row}: {table()[row][mode]!r} is neither yes nor no"
    assert LEARNED[start](said, home) == (claim[0] == "yes"), f"{row} ({mode})"
