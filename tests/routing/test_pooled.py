"""What clients count for all: against plain loops, NumPy and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax

from fedpn.core.promises import class_scores, tally
from fedpn.routing import pooled
from fedpn.routing.bayes import believe, learn_priors
from fedpn.routing.opinion import of_logits
from fedpn.routing.rule import Views
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import doubt_edges, pooled_threshold

K, ROWS = 4, 60
COUNTS = torch.tensor([30, 10, 0, 0])


def seen():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, ROWS)
    logits = rng.normal(size=(ROWS, K)) + 2.0 * np.eye(K)[labels]
    return of_logits(torch.from_numpy(logits), torch.zeros(ROWS, 1)), torch.from_numpy(labels)


def test_temperatures_go_from_a_tenth_to_ten_around_one():
    assert len(pooled.TEMPERATURES) == 61
    assert float(pooled.TEMPERATURES[30]) == 1.0
    ends = [float(pooled.TEMPERATURES[i]) for i in (0, -1)]
    assert ends == pytest.approx([0.1, 10.0])


def test_losses_are_those_of_scaled_logits():
    opinion, labels = seen()
    found = pooled.losses_by_temperature(opinion.probs, labels)
    for i in (0, 17, 30, 60):
        scaled = log_softmax(opinion.logits.numpy() / float(pooled.TEMPERATURES[i]), axis=1)
        right = -scaled[np.arange(ROWS), labels.numpy()].sum()
        assert float(found[i]) == pytest.approx(right, rel=1e-9)
    never = torch.tensor([[0.0, 1.0]])
    assert pooled.losses_by_temperature(never, torch.tensor([0])).isfinite().all()


def test_cooling_is_scaling_of_logits_row_by_row():
    opinion, _ = seen()
    warm = torch.linspace(0.2, 5.0, ROWS)
    right = np.exp(log_softmax(opinion.logits.numpy() / warm.numpy()[:, None], axis=1))
    np.testing.assert_allclose(pooled.cooled(opinion.probs, warm), right, rtol=1e-6)
    sure = torch.tensor([[1.0, 0.0]])
    assert pooled.cooled(sure, torch.tensor([1.0])).tolist() == [[1.0, 0.0]]
    assert pooled.cooled(sure, torch.tensor([7.0])).isfinite().all()


@pytest.mark.parametrize(("kind", "top"), [("lac", 1.0), ("aps", 1.0), ("raps", 1.4)])
def test_the_grid_of_sets_holds_every_score(kind, top):
    opinion, labels = seen()
    edges = pooled.odd_edges(kind, K)
    assert float(edges[0]) == 0.0
    assert top <= float(edges[-1]) < top * 1.00001
    assert float(edges[-3]) > top - 1e-10, "fine at both ends"
    scores = class_scores(opinion.probs, kind)
    right = [float(scores[i, y]) for i, y in enumerate(labels.tolist())]
    assert pooled.true_scores(opinion.probs, labels, kind).tolist() == right


@pytest.mark.parametrize("counts", [[6, 0, 0, 2], [5, 4, 3, 2], [0, 9, 0, 0], [5, 0, 1, 0]])
def test_hypothetical_clients_have_as_many_classes_in_the_same_shares(counts):
    orders = pooled.receivers(K)
    assert len(orders) == 40 and torch.equal(orders, pooled.receivers(K)), "the same for everybody"
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders.tolist())
    shares = sorted((c for c in counts if c), reverse=True)[: K - 1]
    own = pooled.receiver_priors(torch.tensor(counts), orders)
    for row, order in zip(own.tolist(), orders.tolist(), strict=True):
        right = [s / sum(shares) for s in shares] + [0.0] * (K - len(shares))
        assert [row[c] for c in order] == pytest.approx(right)
    assert (own.sum(0) > 0).all(), "every class is somebody's"


@pytest.mark.parametrize("weighs", [True, False])
def test_foreign_rows_are_counted_for_each_hypothetical_client(weighs, monkeypatch):
    """By a plain loop over clients and rows; in parts as at once."""
    opinion, labels = seen()
    found = pooled.count_foreign(opinion, labels, COUNTS, weighs)
    edges = pooled.receiver_edges(K)
    assert found.shape == (41, 2, len(edges) + 1)
    assert int(found[-1, 0].sum()) == ROWS, "every row once"
    for r, own in enumerate(pooled.receiver_priors(COUNTS, pooled.receivers(K)).numpy()):
        absent = own == 0
        prior = own + absent / absent.sum()
        doubts, wrong = [], []
        for p, y in zip(opinion.probs.numpy(), labels.tolist(), strict=True):
            if absent[y]:
                q = p * prior / (p * prior).sum() if weighs else p
                doubts.append(stats.entropy(q))
                wrong.append(q.argmax() != y)
        right = tally(torch.tensor(doubts), torch.tensor(wrong, dtype=torch.bool), edges)
        assert torch.equal(found[r], right.double())
    monkeypatch.setattr(pooled, "CELLS", 40 * K * 7)  # seven rows at once
    assert torch.equal(pooled.count_foreign(opinion, labels, COUNTS, weighs), found)


def test_a_client_with_rows_enough_has_one_vote():
    opinion, labels = seen()
    asked = RoutingSettings(risk=0.2, sure=0.9)
    for rows, votes in ((5, 1), (4, 0)):
        few = torch.arange(rows)
        part = pooled.count_rows(opinion.take(few), labels[few], COUNTS, asked, True)
        assert int(part["limits"].sum()) == votes
    assert "limits" not in pooled.count_rows(opinion, labels, COUNTS, RoutingSettings(), True)
    edges = doubt_edges(K)
    for limit, place in ((-math.inf, 0), (float(edges[0]), 1), (float(edges[-1]), len(edges))):
        vote = torch.zeros(len(edges) + 1)
        vote[place] = 9
        assert pooled.lent_limit(vote, edges, 0.9) == limit


def test_counts_are_of_what_each_model_says():
    opinion, labels = seen()
    found = pooled.count_rows(opinion, labels, COUNTS, RoutingSettings(set_kind="aps"), True)
    doubts, odds = doubt_edges(K), pooled.odd_edges("aps", K)
    probs = opinion.probs.numpy()
    own, foreign = learn_priors(COUNTS)
    prior = ((own + foreign) / 2).numpy()
    bayes = probs * prior / (probs * prior).sum(1, keepdims=True)
    for name, p in (("shared/doubt", probs), ("bayes/doubt", bayes)):
        doubt = torch.from_numpy(stats.entropy(p, axis=1))
        wrong = torch.from_numpy(p.argmax(1)) != labels
        assert wrong.any() and not wrong.all()
        assert torch.equal(found[name], tally(doubt, wrong, doubts)), name
    for name, p in (("shared", probs), ("bayes", bayes)):
        p = torch.from_numpy(p)
        odd = pooled.true_scores(p, labels, "aps")
        near = (found[f"{name}/odd"] - tally(odd, None, odds)).cumsum(1).abs()
        assert int(near.max()) <= 1 and int(found[f"{name}/odd"][0].sum()) == ROWS
        right = pooled.losses_by_temperature(p, labels)
        torch.testing.assert_close(found[f"{name}/heat"], right)
    mixed = believe(Views(opinion, opinion, opinion.total), own, foreign, 0.0).probs(0.5)
    np.testing.assert_allclose(mixed, bayes)


def test_a_pooled_threshold_is_a_quantile_up_to_a_bin():
    opinion, labels = seen()
    counts = pooled.count_rows(opinion, labels, COUNTS, RoutingSettings(), True)["shared/doubt"]
    found, rows = pooled_threshold(counts, K, 0.25), opinion.total.sort().values
    assert float(rows[44]) <= found <= float(rows[44]) + math.log(K) / 100


def test_rows_that_are_all_right_do_not_sharpen_without_end():
    """With one mistake more, the best temperature is that of confidence n / (n + 1), or near it."""
    rng = np.random.default_rng(0)
    for rows in (30, 100, 1000):
        logits = torch.tensor(rng.normal(size=(rows, 5)))
        labels = torch.arange(rows) % 5
        logits[torch.arange(rows), labels] += 8.0
        probs = logits.softmax(-1)
        alone = pooled.losses_by_temperature(probs, labels)
        assert int(alone.argmin()) == 0, "the edge of the grid"
        best = int((alone + pooled.one_mistake(probs)).argmin())
        heat = float(pooled.TEMPERATURES[best])
        sure = (logits / heat).softmax(-1).amax(-1).mean()
        assert 0.1 < heat < 10
        assert float(sure) == pytest.approx(rows / (rows + 1), abs=0.5 / (rows + 1))
