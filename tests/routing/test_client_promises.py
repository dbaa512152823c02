"""Promises by client, by Monte Carlo: at most one client in ten lies above what is promised."""

import numpy as np
import torch

from fedpn.core import promises
from fedpn.routing import pooled
from fedpn.routing.bayes import believe, entropy, learn_priors
from fedpn.routing.opinion import of_logits
from fedpn.routing.rule import EVEN, Views
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import doubt_edges

K, CLIENTS, RISK, SURE = 8, 20, 0.1, 0.9
SETTINGS = RoutingSettings(risk=RISK, sure=SURE)
HARD = torch.tensor([2.0, 2.2, 2.5, 3.0, 4.0, 4.0, 5.0, 6.0])  # how well each class is told


def opinions(rng, labels, strength):
    """What one model says: right by strength, sure as if all inputs were of middling strength."""
    logits = torch.from_numpy(rng.normal(size=(len(labels), K)))
    logits[torch.arange(len(labels)), labels] += strength
    return of_logits(logits, torch.zeros(len(labels), 1))


def deal(rng):
    """Each client has two classes, as many rows of both."""
    return [torch.from_numpy(rng.choice(K, 2, replace=False)) for _ in range(CLIENTS)]


def counts_of(classes):
    return torch.zeros(K, dtype=torch.long).index_fill_(0, classes, 50)


def share_wrong(opinion, labels, classes, limit):
    """Of a client's answers, weighed by Bayes' rule; by its definition, not by counts."""
    mixed = believe(Views(opinion, opinion, opinion.total), *learn_priors(counts_of(classes)), 0.0)
    probs = mixed.probs(EVEN)
    kept = entropy(probs) <= limit
    return float((probs.argmax(-1) != labels)[kept].double().mean()) if kept.any() else 0.0


def test_at_most_one_client_in_ten_lies_above_on_foreign_inputs():
    """A limit that is kept on average alone leaves every third client above."""
    rng = np.random.default_rng(0)
    above = {"each": [], "average": []}
    answered = []
    for _ in range(8):
        deck, parts = deal(rng), []
        for classes in deck:
            labels = classes.repeat(60)
            opinion = opinions(rng, labels, HARD[labels])
            parts.append(pooled.count_rows(opinion, labels, counts_of(classes), SETTINGS, True))
        counts = sum(part["foreign"] for part in parts)
        edges = pooled.receiver_edges(K)
        limits = {
            "each": pooled.foreign_limit(counts, K, RISK, SURE),
            "average": promises.promise(counts[-1], edges, RISK, SURE).threshold,
        }
        answered.append(promises.promise_at(counts[-1], edges, limits["each"], SURE).coverage)
        for classes in deck:
            labels = torch.from_numpy(rng.choice(K, 1500))
            labels = labels[~torch.isin(labels, classes)]
            opinion = opinions(rng, labels, HARD[labels])
            for name, limit in limits.items():
                above[name].append(share_wrong(opinion, labels, classes, limit) > RISK)
    assert np.mean(above["each"]) <= 0.1 + 3 * np.sqrt(0.09 / 160)
    assert np.mean(above["average"]) > 0.25
    assert np.mean(answered) > 0.3


def test_at_most_one_small_client_in_ten_lies_above_on_own_inputs():
    """Clients differ in how well they are served; those with few rows take the others' limit."""
    rng = np.random.default_rng(1)
    edges, above, pooled_above, lent = doubt_edges(K), [], [], []
    for _ in range(12):
        parts = []
        for classes in deal(rng):
            labels = classes.repeat(60)
            opinion = opinions(rng, labels, rng.uniform(1.5, 5.0))
            parts.append(pooled.count_rows(opinion, labels, counts_of(classes), SETTINGS, True))
        limit = pooled.lent_limit(sum(part["limits"] for part in parts), edges, SURE)
        counts = sum(part["bayes/doubt"] for part in parts)
        loose = promises.promise(counts, edges, RISK, SURE).threshold
        lent.append(limit)
        for classes in deal(rng)[:10]:
            labels = classes.repeat(500)
            opinion = opinions(rng, labels, rng.uniform(1.5, 5.0))
            above.append(share_wrong(opinion, labels, classes, limit) > RISK)
            pooled_above.append(share_wrong(opinion, labels, classes, loose) > RISK)
    assert np.mean(above) <= 0.1 + 3 * np.sqrt(0.09 / 12)
    assert np.mean(pooled_above) > 1.5 * np.mean(above)
    assert np.mean(np.isfinite(lent)) > 0.5
