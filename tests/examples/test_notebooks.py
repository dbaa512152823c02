"""The notebooks, cell by cell, as people run them."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbclient and ipykernel")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel")

PLACE = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(PLACE.glob("*.ipynb"))


def outputs(notebook):
    return [out for cell in notebook.cells for out in cell.get("outputs", ())]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, 4)
    client = nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    told = outputs(notebook)
    assert any("image/png" in out.get("data", {}) for out in told), "nothing to look at"
    assert not any("Warning" in out.get("text", "") for out in told)


def test_the_study_has_what_a_researcher_brings():
    text = (PLACE / "study.ipynb").read_text(encoding="utf-8")
    for brought in ("data = (x, y, hospitals)", "class Tiny(", "class Nearest(", "class Wary("):
        assert brought in text
    assert "for seed in (0, 1)" in text and "fedpn.compare(" in text
