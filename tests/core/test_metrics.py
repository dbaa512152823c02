"""Metrics against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from fedpn.core import metrics


@pytest.fixture
def answers():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), 300)
    labels = np.array([rng.choice(4, p=p) for p in probs])
    return torch.tensor(probs), torch.tensor(labels)


def test_auroc_with_ties():
    rng = np.random.default_rng(0)
    known, unknown = rng.integers(0, 9, 200) / 4, rng.integers(3, 12, 150) / 4
    right = roc_auc_score([0] * 200 + [1] * 150, np.concatenate([known, unknown]))
    assert metrics.auroc(torch.tensor(known), torch.tensor(unknown)) == pytest.approx(right)


def test_nll_and_brier(answers):
    probs, labels = answers
    assert metrics.nll(probs, labels) == pytest.approx(log_loss(labels, probs))
    one_hot = np.eye(4)[labels]
    assert metrics.brier(probs, labels) == pytest.approx(
        ((probs.numpy() - one_hot) ** 2).sum(1).mean()
    )


def test_ece_by_hand(answers):
    probs, labels = (t.numpy() for t in answers)
    confidence, right = probs.max(1), probs.argmax(1) == labels
    total = 0.0
    for low in range(15):
        inside = (confidence >= low / 15) & (confidence < (low + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert metrics.ece(*answers) == pytest.approx(total)


def test_aurc_rewards_order():
    wrong = torch.tensor([True, False, False, False])
    last, first = (metrics.aurc(torch.tensor(u), wrong) for u in ([4.0, 1, 2, 3], [0.0, 1, 2, 3]))
    assert last == pytest.approx(1 / 16)
    assert first == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_gap_closed_is_null_where_the_oracle_gains_nothing():
    assert metrics.gap_closed(0.5, 0.9, 0.8, 0.9) is None
    assert metrics.gap_closed(0.5, 0.8, 0.7, 0.9) == pytest.approx(-1)
