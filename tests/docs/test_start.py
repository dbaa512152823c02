"""What docs/start.md shows is what commands print, but for its numbers."""

import re

import numpy as np
import pytest

import fedpn
from blocks import ROOT, blocks_of
from fedpn.cli.main import main
from fedpn.reporting import report
from fedpn.routing.outcomes import Outcome
from making.measured import tables

PAGE = "docs/start.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
NUMBER = re.compile(r"\d+(\.\d+)?")
QUICK = {"rounds": 3, "train__steps": 3, "method__adapt_steps": 20}


@pytest.fixture(scope="module")
def offices_run(tmp_path_factory):
    """The first run, with little training."""
    out = tmp_path_factory.mktemp("first") / "digits"
    fedpn.run(out, **QUICK)
    return out


def shape(lines):
    """Lines in one, spaced alike, without numbers.

    >>> shape(["a   1.5 %", "────", "b"])
    'a # % b'
    """
    return " ".join(" ".join(NUMBER.sub("#", line) for line in lines).replace("─", "").split())


def test_the_first_run_ends_as_it_is_shown(offices_run):
    (shown,) = [b.body for b in blocks_of(PAGE, TEXT) if b.body.startswith("fedpn on offices")]
    *lines, last = shown.strip().splitlines()
    assert last == "report, with all figures: runs/digits/report.html"
    assert sum(line != "" for line in shown.splitlines()) <= 15
    assert shape(lines) == shape(report.closing(offices_run).splitlines())


def test_the_first_answers_are_as_they_are_shown(offices_run, tmp_path, capsys):
    """Columns are those of the command; a source is its outcome's, and so is a missing answer."""
    (shown,) = [found for found in tables(TEXT) if "outcome" in found[0]]
    images = fedpn.open_dataset("offices").x[[546, 549, 1440, 1460, 1462, 546], 0]
    images[5] = np.random.default_rng(0).permuted(images[5].ravel()).reshape(28, 28)
    np.savez(tmp_path / "new.npz", images=images)
    new = str(tmp_path / "new.npz")
    assert main(["predict", str(offices_run), new, "--client", "office 4"]) == 0
    head, *printed = capsys.readouterr().out.splitlines()
    assert shown[0] == head.split("\t") and len(shown) == 1 + len(printed)
    assert shape([shown[-1][-1]]) == shape([printed[-1].split("\t")[-1]])  # a stranger
    sources = {outcome.label: outcome.source.value for outcome in Outcome}
    for row in shown[1:]:
        told = dict(zip(shown[0], (cell.strip("`") for cell in row), strict=True))
        assert told["source"] == sources[told["outcome"]]
        assert ("no answer" in told["answer"]) == (told["source"] == "nobody")
        assert 0 <= float(told["confidence"]) <= 1
    assert {row[3].strip("`") for row in shown[1:]} == set(sources.values())
