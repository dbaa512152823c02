"""Cells of a sweep never look at test rows."""

from dataclasses import replace

import numpy as np
import pytest

from fedpn.data.federation import Federation
from fedpn.federated.listener import Listener
from fedpn.runs.config import resolve
from fedpn.runs.prepare import deal
from fedpn.runs.studies import tuned

TINY = {
    "clients": 4,
    "rounds": 2,
    "train": {"steps": 2, "batch": 16},
    "method": {"adapt_steps": 4, "adapt_epochs": 0},
    "head": {"filters": 4},
}


def _config(algorithm, seed):
    return resolve([TINY, {"algorithm": algorithm, "seed": seed}])


def _spoilt(choose):
    """Deals as usual; then the chosen rows get other pictures and other labels."""

    def spoil(config, given=None):
        dataset, whole = deal(config, given)
        rows = np.concatenate(choose(whole))
        x, y = dataset.x.copy(), dataset.y.copy()
        x[rows] = x[rows][::-1, :, ::-1]
        y[rows] = (y[rows] + 1) % len(dataset.classes)
        return replace(dataset, x=x, y=y), Federation(
            y, whole.train, whole.calibration, whole.test, whole.seed
        )

    return spoil


@pytest.mark.parametrize("algorithm", ["fedpn", "analytic", "ditto"])
def test_other_test_rows_change_nothing(algorithm, tmp_path, monkeypatch):
    config = _config(algorithm, seed=1)

    def judged(name):
        return tuned.judge_on_tuning_rows(config, 0, tmp_path / name, Listener())

    clean = judged("clean")
    monkeypatch.setattr(tuned, "deal", _spoilt(lambda whole: whole.test))
    assert judged("other test rows") == clean
    monkeypatch.setattr(tuned, "deal", _spoilt(lambda whole: whole.train))
    assert judged("other training rows") != clean


def test_the_test_rows_of_the_first_seed_are_those_of_all_cells():
    _, whole = deal(_config("fedavg", seed=0))
    tests, held_out = np.concatenate(whole.test), []
    for seed in (0, 1, 2):
        used = tuned.prepare_tuning(_config("fedavg", seed), dealt=0).federation
        for rows in (used.train, used.calibration, used.test):
            assert not np.isin(np.concatenate(rows), tests).any()
        held_out.append(np.concatenate(used.test))
    assert not np.array_equal(held_out[0], held_out[1])


def test_a_fifth_of_the_training_rows_is_judged_and_not_trained_on():
    _, whole = deal(_config("fedavg", seed=0))
    used = tuned.prepare_tuning(_config("fedavg", seed=0), dealt=0).federation
    for before, train, held in zip(whole.train, used.train, used.test, strict=True):
        assert sorted([*train, *held]) == before.tolist()
        assert len(held) == pytest.approx(len(before) / 5, abs=1)
