"""Differences beyond chance: against scipy, and that chance alone is seldom called one."""

import numpy as np
import pytest
from scipy import stats

from fedpn.core.paired import holm, mean_interval, nested

CHANCE = 0.05
TIMES = 4000
MARGIN = 3 * np.sqrt(CHANCE * (1 - CHANCE) / TIMES)  # of a share among so many trials


def _draw(rng, seeds, clients, shared, skewed=False):
    """Differences whose mean is zero; clients of a seed have a part in common."""
    own = (
        rng.exponential(size=(seeds, clients)) - 1 if skewed else rng.normal(size=(seeds, clients))
    )
    return shared * rng.normal(size=(seeds, 1)) + own


def test_over_seeds_it_is_the_paired_t_test_of_their_means():
    rng = np.random.default_rng(0)
    one, other = rng.random((4, 20)), rng.random((4, 20))
    found = nested((one - other).tolist())
    wanted = stats.ttest_rel(one.mean(1), other.mean(1))
    ends = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.interval == pytest.approx((ends.low, ends.high))
    assert found.mean == pytest.approx((one - other).mean())
    assert (found.seeds, found.clients, found.over_seeds) == (4, 20, True)


def test_it_is_the_f_test_of_a_nested_design():
    """The mean against the spread between seeds, as an analysis of variance has it."""
    table = _draw(np.random.default_rng(1), 5, 8, shared=1.0) + 0.7
    between = 8 * table.mean(1).var(ddof=1)
    f = table.size * table.mean() ** 2 / between
    assert nested(table.tolist()).p == pytest.approx(stats.f.sf(f, 1, 4))


def test_of_one_seed_it_is_the_paired_t_test_of_clients():
    rng = np.random.default_rng(2)
    one, other = rng.random(12), rng.random(12)
    found = nested([(one - other).tolist()])
    assert found.p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert not found.over_seeds


@pytest.mark.parametrize("shared", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("skewed", [False, True])
def test_chance_is_seldom_called_a_difference(seeds, shared, skewed):
    rng = np.random.default_rng(3)
    found = [
        nested(_draw(rng, seeds, 20, shared, skewed).tolist()).p < CHANCE for _ in range(TIMES)
    ]
    assert np.mean(found) <= CHANCE + MARGIN


def test_counting_clients_would_call_it_one_often():
    """Why seeds are the witnesses: clients that share a model are not independent."""
    rng = np.random.default_rng(4)
    naive = [nested([_draw(rng, 3, 20, 1.0).ravel().tolist()]).p < CHANCE for _ in range(TIMES)]
    assert np.mean(naive) == pytest.approx(0.58, abs=0.03)  # as docs/studies.md has it


def test_real_differences_are_found():
    rng = np.random.default_rng(5)
    found = [nested((_draw(rng, 5, 20, 0.1) + 0.5).tolist()).p < CHANCE for _ in range(500)]
    assert np.mean(found) > 0.8


def test_of_many_comparisons_together_chance_is_seldom_called_one():
    """Four methods that are the same: the six pairs of them share their seeds."""
    rng = np.random.default_rng(6)
    wrong = []
    for _ in range(1500):
        methods = rng.normal(size=(4, 3, 1)) + rng.normal(size=(4, 3, 10))
        pairs = [(i, j) for i in range(4) for j in range(i)]
        p = [nested((methods[i] - methods[j]).tolist()).p for i, j in pairs]
        wrong.append(min(holm(p)) < CHANCE)
    assert np.mean(wrong) <= CHANCE + 3 * np.sqrt(CHANCE * (1 - CHANCE) / 1500)


def test_holm_rejects_what_the_step_down_procedure_does():
    rng = np.random.default_rng(7)
    for _ in range(200):
        p = (rng.random(6) ** 3).tolist()
        for level in (0.01, 0.05, 0.2):
            ordered, rejected = sorted(p), 0
            while rejected < 6 and ordered[rejected] <= level / (6 - rejected):
                rejected += 1
            assert sum(value <= level for value in holm(p)) == rejected
    assert holm([]) == []


def test_where_nothing_varies_signs_alone_tell():
    same = nested([[0.01, 0.01]] * 3)
    assert same.interval is None and same.p == 0.25
    assert nested([[0.0, 0.0]] * 3).p == 1.0
    assert nested([[0.5]]) is None
    assert mean_interval([0.5]) is None
