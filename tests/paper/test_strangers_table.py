"""The page on strangers is held to the results that are kept."""

import json
from pathlib import Path

from fedpn_paper.strangers_table import by_kind, by_score

HERE = Path(__file__).parents[2]
KEPT = json.loads((HERE / "results/strangers.json").read_text())


def test_the_page_shows_what_was_kept():
    page = (HERE / "docs/strangers.md").read_text(encoding="utf-8")
    assert by_kind(KEPT) in page and by_score(KEPT) in page


def test_six_sets_over_three_seeds():
    assert len(KEPT) == 18
    for tree in KEPT.values():
        assert 0.92 < tree["gate"]["known rows"] < 0.97


def test_the_gate_stops_what_is_no_picture():
    for tree in KEPT.values():
        assert all(tree["gate"][kind] <= 0.05 for kind in ("noise", "constant", "shuffled"))
