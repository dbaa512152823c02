"""Uncertainty scores, all of one orientation: higher = less known."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import dirichlet
from fedpn.core.dirichlet import Posterior


class Opinion(NamedTuple):
    """All that routing needs of one model's view of a batch."""

    probs: Tensor  # [B, K], the predictive distribution
    epistemic: Tensor  # [B], the switch's score
    aleatoric: Tensor  # [B]
    total: Tensor  # [B]


POSTERIOR_SCORES: dict[str, Callable[[Posterior], Tensor]] = {
    "log_density": lambda p: -p.log_density,
    "entropy": lambda p: dirichlet.entropy(p.alpha),
    "mutual_information": lambda p: dirichlet.mutual_information(p.alpha),
    "reverse_mutual_information": lambda p: dirichlet.reverse_mutual_information(p.alpha),
    "expected_pairwise_kl": lambda p: dirichlet.expected_pairwise_kl(p.alpha),
    "expected_entropy": lambda p: dirichlet.expected_entropy(p.alpha),
    "entropy_of_mean": lambda p: dirichlet.entropy_of_mean(p.alpha),
    "max_probability": lambda p: 1 - dirichlet.mean(p.alpha).amax(-1),
}

LOGIT_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "msp": lambda logits: 1 - logits.softmax(-1).amax(-1),
    "energy": lambda logits: -torch.logsumexp(logits, -1),
    "entropy": lambda logits: softmax_entropy(logits),
}


def softmax_entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax.

    >>> softmax_entropy(torch.zeros(2)).exp()
    tensor(2.)
    """
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


def of_posterior(posterior: Posterior, score: str = "log_density") -> Opinion:
    """Aleatoric = expected entropy (eq. 4), total = entropy of the mean."""
    return Opinion(
        dirichlet.mean(posterior.alpha),
        POSTERIOR_SCORES[score](posterior),
        dirichlet.expected_entropy(posterior.alpha),
        dirichlet.entropy_of_mean(posterior.alpha),
    )


def of_logits(logits: Tensor, epistemic: Tensor) -> Opinion:
    """A softmax cannot tell kinds of uncertainty apart: its entropy stands for both."""
    spread = softmax_entropy(logits)
    return Opinion(logits.softmax(-1), epistemic, spread, spread)
