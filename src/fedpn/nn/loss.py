"""What training minimises: (network, embeddings, labels) -> the mean over rows."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedpn.core.dirichlet import entropy, uncertain_cross_entropy
from fedpn.nn.posterior import Classifier, PosteriorNetwork


def cross_entropy(network: Classifier, z: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the softmax head."""
    return F.cross_entropy(network.logits(z), labels)


class Terms(NamedTuple):
    """What a posterior network's loss is made of."""

    gamma: float = 0.0  # weight of the log-likelihood
    cap: float = math.inf  # nats for each dimension of z, up to which it is rewarded
    entropy_weight: float = 0.0  # λ
    label_flow: bool = True  # the density of the label's flow, or of all


def bayesian(network: PosteriorNetwork, z: Tensor, labels: Tensor, **options: float) -> Tensor:
    """UCE − λ·H[Dir(α)]: the Bayesian loss (eq. 6)."""
    return _terms(network, z, labels, Terms(**options), repaired=False).mean()  # type: ignore[arg-type]


def repaired(network: PosteriorNetwork, z: Tensor, labels: Tensor, **options: float) -> Tensor:
    """UCE − λ·H[Dir(α)] − γ·log p(z): its repair (eq. 8).

    The first two terms send no gradient to the density's parameters, which learn from the
    likelihood alone; the encoder learns from all three, through z.

    The likelihood of a learned embedding has no bound: an encoder may shrink z to a point. So it is
    rewarded up to a cap alone; ∞ is the paper's form.
    """
    return _terms(network, z, labels, Terms(**options), repaired=True).mean()  # type: ignore[arg-type]


def _terms(
    network: PosteriorNetwork, z: Tensor, labels: Tensor, terms: Terms, repaired: bool
) -> Tensor:
    (alpha, *_), log_likelihood = network.evidence(z, labels, terms.label_flow, repaired)
    loss = uncertain_cross_entropy(alpha, labels)
    if terms.entropy_weight:
        loss = loss - terms.entropy_weight * entropy(alpha)
    if repaired:
        loss = loss - terms.gamma * log_likelihood.clamp(max=terms.cap * z.shape[-1])
    return loss


LOSSES: dict[str, Callable[..., Tensor]] = {"bayesian": bayesian, "repaired": repaired}
