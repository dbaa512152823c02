"""The page on answers in closed form is held to the results that are kept."""

from pathlib import Path

import pytest

from fedpn_paper.bayes_tables import WAYS, bayes_tables
from fedpn_paper.ledger_markdown import of_table
from fedpn_paper.record import read_records
from fedpn_paper.results import Results

HERE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kept():
    return Results(tuple(read_records(HERE / "results")))


def test_the_page_shows_what_was_kept(kept):
    mix, every = bayes_tables(kept)
    assert of_table(mix) in (HERE / "docs" / "bayes.md").read_text(encoding="utf-8")
    ledger = (HERE / "docs" / "ledger.md").read_text(encoding="utf-8")
    assert of_table(mix) in ledger and of_table(every) in ledger


def test_a_cell_is_a_mean_over_seeds(kept):
    records = kept.of("svhn", "analytic")
    assert records and all(record["rounds"] == 0 for record in records)
    mean = sum(record["accuracy"]["bayes"]["mix"] for record in records) / len(records)
    row = next(row for row in bayes_tables(kept)[0].rows if "SVHN" in row.name)
    place = [(way.algorithm, way.variant) for way in WAYS].index(("analytic", ""))
    assert row.cells[place].ours.mean == pytest.approx(100 * mean)


def test_the_oracle_does_not_compete(kept):
    place = [way.who for way in WAYS].index("oracle")
    for row in bayes_tables(kept)[0].rows:
        assert not row.cells[place].best and any(cell.best for cell in row.cells)


def test_nothing_is_shown_of_nothing():
    assert bayes_tables(Results(())) == []
