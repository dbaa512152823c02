"""What docs/start.md shows is what commands print, but for its numbers."""

import re

import numpy as np

import fedpn
from blocks import ROOT, blocks_of
from fedpn.cli.main import main
from fedpn.reporting import report
from fedpn.routing.outcomes import Outcome
from making.measured import tables

PAGE = "docs/start.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
NUMBER = re.compile(r"\d+(\.\d+)?")


def shape(lines):
    """Lines in one, spaced alike, without numbers and without remarks on one run."""
    kept = (line for line in lines if not line.startswith("note: "))
    return " ".join(" ".join(NUMBER.sub("#", line) for line in kept).replace("─", "").split())


def test_the_first_run_ends_as_it_is_shown(quick_run):
    (shown,) = [b.body for b in blocks_of(PAGE, TEXT) if b.body.startswith("fedpn on digits")]
    *lines, last = shown.strip().splitlines()
    assert last == "report: runs/digits/report.html"
    assert shape(lines) == shape(report.text([quick_run]).splitlines())


def test_the_first_answers_are_as_they_are_shown(quick_run, tmp_path, capsys):
    """Columns are those of the command; a source is its outcome's, and so is a missing answer."""
    (shown,) = [found for found in tables(TEXT) if "outcome" in found[0]]
    np.savez(tmp_path / "new.npz", images=fedpn.open_dataset("digits").x[84:90, 0])
    assert main(["predict", str(quick_run), str(tmp_path / "new.npz"), "--client", "3"]) == 0
    head, *printed = capsys.readouterr().out.splitlines()
    assert shown[0] == head.split("\t") and len(shown) == 1 + len(printed)
    sources = {outcome.label: outcome.source.value for outcome in Outcome}
    for row in shown[1:]:
        told = dict(zip(shown[0], (cell.strip("`") for cell in row), strict=True))
        assert told["source"] == sources[told["outcome"]]
        assert ("no answer" in told["answer"]) == (told["source"] == "nobody")
        assert 0 <= float(told["confidence"]) <= 1
    assert {row[3].strip("`") for row in shown[1:]} == set(sources.values())
