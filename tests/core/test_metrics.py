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


def test_log_probabilities_by_temperature_are_those_of_pytorch(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 7, 5, generator=rng, dtype=torch.float64)
    truth = torch.randint(5, (7,), generator=rng)
    heats = [0.01, 1.0, 7.0]
    expected = torch.stack(
        [
            (scores / heat).log_softmax(-1).gather(-1, truth.expand(2, 7)[..., None])[..., 0]
            for heat in heats
        ],
        -1,
    )
    for cached in (1, 25, 1 << 17):
        monkeypatch.setattr(metrics, "CACHED", cached)
        torch.testing.assert_close(metrics.tempered(scores, truth, heats), expected)
    assert metrics.tempered(scores[:, :0], truth[:0], heats).shape == (2, 0, 3)
