"""The page on answers in closed form is held to the results that are kept."""

import json
from pathlib import Path

from fedpn_paper.analytic_table import SETS, ridge_table, table

HERE = Path(__file__).parents[2]


def test_the_page_shows_what_was_kept():
    assert table(HERE / "results") in (HERE / "docs" / "bayes.md").read_text()


def test_every_kept_result_is_of_the_algorithm():
    for path in (HERE / "results" / "analytic").glob("*.json"):
        kept = json.loads(path.read_text())
        assert (kept["algorithm"], kept["rounds"]) == ("analytic", 0)
        assert path.name == f"{kept['dataset']}-s{kept['seed']}.json"
        assert kept["dataset"] in SETS


def test_a_cell_is_a_mean_over_seeds():
    runs = [
        json.loads((HERE / f"results/analytic/svhn-s{seed}.json").read_text()) for seed in range(3)
    ]
    mix = sum(run["accuracy"]["bayes"]["mix"] for run in runs) / 3
    row = next(line for line in table(HERE / "results").splitlines() if "SVHN" in line)
    assert f"{100 * mix:.1f}" in row.split("|")[6]


def test_the_page_shows_the_ridge_heads_too():
    assert ridge_table(HERE / "results") in (HERE / "docs" / "bayes.md").read_text()
