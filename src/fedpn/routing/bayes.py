"""Bayes' rule with the client's own prior: one answer from what both sides know.

The federation's model has learned p_g(y | x) under an even prior. Whose input it is changes the
prior: π_own has the client's class frequencies, π_foreign the classes that it has not. With the
share ρ of own inputs,

    P(own | x) = σ(log Σ_y p_g(y|x)·π_own(y) − log Σ_y p_g(y|x)·π_foreign(y) + logit ρ),
    p(y | x) = P(own | x)·p(y | x, own) + (1 − P(own | x))·p(y | x, foreign).

ρ is ½ before any input is seen and is learned from unlabelled inputs by EM (Saerens et al., 2002,
for two shares), with one pseudo-count on each side.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core.trees import Params
from fedpn.routing.opinion import Opinion

EVEN = 0.5  # the share of own inputs, before any is seen
STEPS = 60  # of EM: far beyond what it needs
TINY = 1e-30


class Belief(NamedTuple):
    """What Bayes' rule says of some rows."""

    odds: Tensor  # [B], log of own against foreign, before the share
    own: Tensor  # [B, K], p(y | x, own)
    foreign: Tensor  # [B, K], p(y | x, foreign)

    def own_chance(self, share: float) -> Tensor:  # [B]
        """P(own | x), given the share of own inputs."""
        ratio = torch.tensor(share, dtype=torch.float64).clamp(1e-6, 1 - 1e-6).logit()
        return torch.sigmoid(self.odds + ratio)

    def probs(self, share: float) -> Tensor:  # [B, K]
        """p(y | x), given the share of own inputs."""
        mine = self.own_chance(share)[:, None]
        return mine * self.own + (1 - mine) * self.foreign


def learn_priors(labels: Tensor, classes: int) -> Params:
    """π_own by the client's training labels; π_foreign even over the others, or over all."""
    counts = torch.bincount(labels, minlength=classes).double()
    absent = (counts == 0).double()
    others = absent if absent.any() else torch.ones_like(absent)
    return {"own": counts / counts.sum(), "foreign": others / others.sum()}


def believe(shared: Opinion, local: Opinion, priors: Params, weight: float) -> Belief:
    """Both sides of an input; `weight` is the client's own model's say in p(y | x, own)."""
    log_g = shared.probs.double().clamp(min=TINY).log()
    mine, theirs = (log_g + priors[side].clamp(min=0).log() for side in ("own", "foreign"))
    odds = torch.logsumexp(mine, -1) - torch.logsumexp(theirs, -1)
    own = mine.log_softmax(-1)
    if weight:
        log_local = local.probs.double().clamp(min=TINY).log()
        own = ((1 - weight) * own.clamp(min=-1e3) + weight * log_local).log_softmax(-1)
    return Belief(odds, own.exp(), theirs.softmax(-1))


def learn_share(odds: Tensor, pseudo: float = 1.0) -> float:
    """The share of own inputs among unlabelled ones, by EM with a Beta prior.

    >>> round(learn_share(torch.tensor([9.0] * 8)), 3), learn_share(torch.tensor([]))
    (0.9, 0.5)
    """
    share = EVEN
    for _ in range(STEPS if len(odds) else 0):
        ratio = torch.tensor(share, dtype=torch.float64).logit()
        mine = float(torch.sigmoid(odds.double() + ratio).sum())
        share = (mine + pseudo) / (len(odds) + 2 * pseudo)
    return share


def entropy(probs: Tensor) -> Tensor:  # [B, K] -> [B]
    """Of a distribution that may have zeros."""
    return -(probs * probs.clamp(min=TINY).log()).sum(-1)
