"""The notebooks, cell by cell, as people run them, but with few rounds and seeds."""

import re
import sys
from os import environ, pathsep
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")

PLACE = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(PLACE.glob("*.ipynb"))
LARGEST = 300_000  # bytes, outputs and all
# What people wait for and tests need not: each must be found in some notebook.
SMALL = {
    r"(\brounds=|\"rounds\": )\d+": r"\g<1>2",
    r"for seed in range\(4\)": "for seed in range(2)",
    r"\"method__lr\": \[0.01, 0.03, 0.1\]": '"method__lr": [0.01, 0.03]',
    r"fedpn__adapt_steps\": \d+": 'fedpn__adapt_steps": 20',
    r"clients=5, ": "clients=5, fedpn__adapt_steps=20, ",
}

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def outputs(notebook):
    return [out for cell in notebook.cells for out in cell.get("outputs", ())]


def lessened(notebook):
    for cell in notebook.cells:
        for long, short in SMALL.items():
            cell.source = re.sub(long, short, cell.source)
    return notebook


@pytest.mark.slow
@every
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    if path.stem == "flower":
        pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Cells call `fedpn` by its name, as people do whose environment is active.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{pathsep}{environ['PATH']}")
    notebook = lessened(nbformat.read(path, 4))
    client = nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    told = outputs(notebook)
    assert any("image/png" in out.get("data", {}) for out in told), "nothing to look at"
    assert not any("Warning" in out.get("text", "") for out in told)


@every
def test_a_notebook_shows_what_came_out_and_no_place_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, 4)
    ran = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert ran == list(range(1, len(ran) + 1)), "run it from top to bottom"
    assert len(text.encode()) < LARGEST
    said = "\n".join(str({**out, "data": _texts(out)}) for out in outputs(notebook))
    assert not re.search(r"/(tmp|home|root|work|var|Users|usr)/", said)
    assert not re.search(r"Traceback|Error\b", said)


def _texts(out):
    return {kind: value for kind, value in out.get("data", {}).items() if kind.startswith("text/")}


def test_what_is_lessened_is_there():
    text = "\n".join(cell.source for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells)
    assert [long for long in SMALL if not re.search(long, text)] == []


def test_the_study_has_what_a_researcher_brings():
    text = (PLACE / "study.ipynb").read_text(encoding="utf-8")
    for brought in ("data = (x, y, hospitals)", "class Tiny(", "class Nearest(", "class Wary("):
        assert brought in text
    assert "for seed in (0, 1)" in text and "fedpn.compare(" in text
