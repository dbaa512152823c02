"""Thresholds: the finite-sample rule, and what it promises."""

import numpy as np
import pytest
import torch

from fedpn.core.errors import UserError
from fedpn.routing.scores import Opinion
from fedpn.routing.thresholds import Thresholds, calibrate, rows_needed, threshold


@pytest.mark.parametrize(
    ("n", "share", "rank"),
    [(9, 0.1, 9), (10, 0.1, 10), (19, 0.1, 18), (99, 0.05, 95), (20, 0.3, 15)],
)
def test_takes_the_rank_of_the_rule(n, share, rank):
    scores = torch.from_numpy(np.random.default_rng(0).permutation(n) + 1.0)
    assert threshold(scores, share) == rank


@pytest.mark.parametrize(("share", "least"), [(0.1, 9), (0.05, 19), (0.5, 1), (0.3, 3), (1.0, 1)])
def test_too_few_rows_are_refused_in_words(share, least):
    assert rows_needed(share) == least
    threshold(torch.arange(float(least)), share)
    if least > 1:
        with pytest.raises(UserError, match=f"needs at least {least}"):
            threshold(torch.arange(float(least - 1)), share)


def test_a_new_row_exceeds_it_as_seldom_as_promised():
    rng = np.random.default_rng(0)
    exceeded = [
        rng.normal() > threshold(torch.from_numpy(rng.normal(size=25)), 0.2) for _ in range(4000)
    ]
    assert 0.17 < np.mean(exceeded) <= 0.21


def test_each_threshold_is_by_its_own_model():
    def opinion(start):
        scores = [torch.arange(start + 100 * k, start + 100 * k + 19) for k in range(3)]
        return Opinion(torch.zeros(19, 2), *(s.double() for s in scores))

    found = calibrate(opinion(0), opinion(1000), outliers=0.1, abstain=0.05)
    assert found == Thresholds(epistemic=17, aleatoric=118, total=1218)
