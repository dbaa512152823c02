"""What tells a client's inputs from others': classes, looks, both or nothing."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as Reference

from fedpn.federated.heads.own import likeness, log_odds
from fedpn.federated.heads.sums import solve
from fedpn.runs import pipeline
from fedpn.runs.config import resolve

SMALL = {
    "dataset": "digits",
    "algorithm": "analytic",
    "clients": 4,
    "head": {"filters": 3},  # few: a client's own rows matter
    "routing": {"abstain": 0.2, "outliers": 0.2},
}
SCENARIOS = {
    "label shift": {},
    "feature shift": {"data": {"partition": "iid", "shift": "pictures"}},
    "both": {"data": {"shift": "pictures"}},
    "none": {"data": {"partition": "iid"}},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    home = tmp_path_factory.mktemp("scenarios")
    return {
        name: pipeline.run(resolve([SMALL, changes]), home / name.replace(" ", "-"))
        for name, changes in SCENARIOS.items()
    }


def test_bayes_goes_by_what_there_is(found):
    apart = {name: metrics["apart"] for name, metrics in found.items()}
    assert [apart[name]["classes"] for name in SCENARIOS] == [1, 0, 1, 0]
    assert [apart[name]["looks"] for name in SCENARIOS] == [0, 1, 0, 0]
    assert apart["none"]["own_head"] == 0  # one model for all is best, and is used
    assert apart["feature shift"]["own_head"] == 1 and apart["both"]["own_head"] > 0


def test_looks_tell_own_from_others_where_classes_do_not(found):
    others = {name: metrics["streams"]["others"] for name, metrics in found.items()}
    assert others["feature shift"]["auroc"] > 0.95
    assert others["feature shift"]["own_share"] < 0.1
    assert found["feature shift"]["streams"]["own"]["own_share"] > 0.9
    assert others["none"]["auroc"] == 0.5 and others["label shift"]["auroc"] is None


def test_own_inputs_lose_nothing_by_it(found):
    for metrics in found.values():
        accuracy = metrics["accuracy"]
        assert metrics["streams"]["own"]["accuracy"] >= accuracy["global"]["ind"] - 0.005
    shifted = found["feature shift"]
    gain = shifted["streams"]["own"]["accuracy"] - shifted["accuracy"]["global"]["ind"]
    assert gain > 0.1


def test_a_head_with_more_of_its_own_rows_is_their_weighted_regression():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(60, 5)), np.ones(60)]
    y = np.eye(3)[rng.integers(0, 3, 60)]
    own = np.arange(60) < 20
    weights = 1 + 4.0 * own
    gram, cross = ((x * weights[:, None]).T @ m for m in (x, y))
    matrix = solve(torch.from_numpy(gram), torch.from_numpy(cross), 3.0).numpy()
    mean = np.average(x[:, :-1], axis=0, weights=weights)
    std = np.sqrt(np.average((x[:, :-1] - mean) ** 2, axis=0, weights=weights))
    reference = Reference(alpha=3.0).fit((x[:, :-1] - mean) / std, y, sample_weight=weights)
    np.testing.assert_allclose(x @ matrix, reference.predict((x[:, :-1] - mean) / std), atol=1e-9)


def rows(shift, count=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    x[:, 0] += shift
    return torch.from_numpy(np.c_[x, np.ones(count)])


@pytest.mark.parametrize(("shift", "tells"), [(3.0, True), (0.0, False)])
def test_likeness_is_learned_from_sums_alone(shift, tells):
    mine, others, held = rows(shift), rows(0.0, 2000, 1), rows(shift, 200, 2)
    own = mine.T @ mine
    state = likeness(own + others.T @ others, own, held, 1.0)
    assert bool(state) == tells
    if tells:
        new, strange = rows(shift, 500, 3).float(), rows(0.0, 500, 4).float()
        assert (log_odds(new, state) > 0).double().mean() > 0.85
        assert (log_odds(strange, state) > 0).double().mean() < 0.15
        # The spread of others' rows is that of the rows themselves, though none was sent.
        place = others @ state["direction"].double()
        assert state["normal"][2] == pytest.approx(float(place.mean()), abs=1e-6)
        assert state["normal"][3] == pytest.approx(float(place.std()), rel=1e-3)


def test_a_client_alone_has_nobody_to_be_told_from():
    own = rows(1.0).T @ rows(1.0)
    assert likeness(own, own, rows(1.0, 50), 1.0) == {}
    assert log_odds(rows(0.0).float(), {}) is None
