"""What training minimises: (network, embeddings, labels) -> the mean over rows."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedpn.core.dirichlet import entropy, uncertain_cross_entropy
from fedpn.nn.posterior import Classifier, PosteriorNetwork


def cross_entropy(network: Classifier, z: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the softmax head."""
    return F.cross_entropy(network.logits(z), labels)


def bayesian(
    network: PosteriorNetwork,
    z: Tensor,
    labels: Tensor,
    gamma: float = 0.0,
    entropy_weight: float = 0.0,
    label_flow: bool = True,
    repaired: bool = False,
) -> Tensor:
    """UCE − λ·H[Dir(α)] − γ·log p(z): the Bayesian loss (eq. 6), and its repair (eq. 8).

    In the repaired loss the first two terms send no gradient to the density's parameters, which
    learn from the likelihood alone; the encoder learns from all three, through z.
    """
    (alpha, *_), log_likelihood = network.evidence(z, labels, label_flow, repaired)
    loss = uncertain_cross_entropy(alpha, labels)
    if entropy_weight:
        loss = loss - entropy_weight * entropy(alpha)
    if repaired:
        loss = loss - gamma * log_likelihood
    return loss.mean()


LOSSES: dict[str, Callable[..., Tensor]] = {
    "bayesian": partial(bayesian, repaired=False),
    "repaired": partial(bayesian, repaired=True),
}
