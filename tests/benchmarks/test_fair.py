"""The table of fair rows: what is kept is fair, and the documentation shows it."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fedpn.algorithms import ALGORITHMS
from fedpn.core import store
from fedpn.data.dataset import Dataset

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "results" / "fair").glob("*.json"))


@pytest.fixture(scope="module")
def fair():
    """The benchmark, which is a script beside its table and its tries."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield import_module("fair")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_every_method_is_tried_equally_often(fair):
    tried = [(f, m) for f in fair.FAMILIES.values() for m in f.methods]
    assert {method for _, method in tried} == set(ALGORITHMS)
    for family, method in tried:
        settings = list(family.tries(method))
        assert len({repr(one) for one in settings}) == len(settings) == fair.TRIES, method


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_best_try_is_chosen_and_nothing_else(fair, path):
    for row in store.read_json(path)["rows"]:
        if "accuracy" not in row:
            continue
        tries = row["tries"]
        assert [t["settings"] for t in tries] == list(
            fair.FAMILIES[row["family"]].tries(row["method"])
        )
        for tried in tries:
            told = tried["accuracy"]
            assert tried["rating"] == (fair.rating(told) if told else 0.0)
        best = max(tried["rating"] for tried in tries)
        assert next(t for t in tries if t["settings"] == row["chosen"])["rating"] == best
        assert set(row["seeds"]) == {str(seed) for seed in fair.SEEDS}
        assert row["accuracy"] == fair.summary(row["seeds"])


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_docs_show_the_table(fair, path):
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    assert fair.table(store.read_json(path)) in page


def test_no_row_is_both_to_choose_by_and_to_test_on(fair, monkeypatch):
    monkeypatch.setattr(fair, "ROWS", 60)
    rows = np.arange(100)
    halves = fair.halves(Dataset("a", rows[:, None], rows % 3, ("a", "b", "c")))
    choose, test = (set(half.x[:, 0].tolist()) for half in halves)
    assert not choose & test
    assert len(choose) == len(test) == 30
    assert all(np.bincount(half.y).min() == 10 for half in halves)


def test_a_try_is_rated_by_what_its_models_are_for(fair):
    own, whole = {"ind": 0.9, "mix": 0.5}, {"ind": 0.7, "mix": 0.6}
    assert fair.rating({"global": whole}) == 0.6
    assert fair.rating({"personal": own}) == 0.9
    assert fair.rating({"local": own, "global": whole, "switch": whole}) == 0.75
