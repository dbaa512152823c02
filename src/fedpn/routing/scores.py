"""Uncertainty scores of one model, all of one orientation: higher = less known."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedpn.core import dirichlet
from fedpn.routing.opinion import Opinion, softmax_entropy


def _of_alpha(measure: Callable[[Tensor], Tensor]) -> Callable[[Opinion], Tensor]:
    def score(opinion: Opinion) -> Tensor:
        assert opinion.alpha is not None
        return measure(opinion.alpha)

    return score


def log_density(opinion: Opinion) -> Tensor:
    """−log p(z): what is unlike the training rows lies where few of them were."""
    assert opinion.log_density is not None
    return -opinion.log_density


POSTERIOR_SCORES: dict[str, Callable[[Opinion], Tensor]] = {
    "log_density": log_density,
    "dirichlet_entropy": _of_alpha(dirichlet.entropy),
    "mutual_information": _of_alpha(dirichlet.mutual_information),
    "reverse_mutual_information": _of_alpha(dirichlet.reverse_mutual_information),
    "expected_pairwise_kl": _of_alpha(dirichlet.expected_pairwise_kl),
    "expected_entropy": _of_alpha(dirichlet.expected_entropy),
    "entropy_of_mean": _of_alpha(dirichlet.entropy_of_mean),
    "max_probability": _of_alpha(lambda alpha: 1 - dirichlet.mean(alpha).amax(-1)),
}

SOFTMAX_SCORES: dict[str, Callable[[Opinion], Tensor]] = {
    "msp": lambda opinion: 1 - opinion.logits.softmax(-1).amax(-1),
    "energy": lambda opinion: -torch.logsumexp(opinion.logits, -1),
    "softmax_entropy": lambda opinion: softmax_entropy(opinion.logits),
}

SCORES = POSTERIOR_SCORES | SOFTMAX_SCORES
