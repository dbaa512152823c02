"""What one model says of a batch: all that routing may know of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import dirichlet
from fedpn.core.dirichlet import Posterior


class Opinion(NamedTuple):
    """One model's view of some rows; `alpha` and `log_density` are a posterior network's alone."""

    probs: Tensor  # [B, K], the predictive distribution
    aleatoric: Tensor  # [B]
    total: Tensor  # [B]
    logits: Tensor  # [B, K]
    z: Tensor  # [B, D], the embedding
    alpha: Tensor | None = None  # [B, K]
    log_density: Tensor | None = None  # [B]

    def take(self, index: Tensor) -> "Opinion":
        """The opinion of some of the rows."""
        return self.map(lambda t: t[index])

    def map(self, f: Callable[[Tensor], Tensor]) -> "Opinion":
        """Applies a function to every tensor that is there."""
        return Opinion(*(t if t is None else f(t) for t in self))  # type: ignore[arg-type]

    @property
    def label(self) -> Tensor:  # [B]
        return self.probs.argmax(-1)


def join(parts: Sequence[Opinion]) -> Opinion:
    """Opinions of batches, one after the other."""
    columns = zip(*parts, strict=True)
    joined = (None if c[0] is None else torch.cat(c) for c in columns)
    return Opinion(*joined)  # type: ignore[arg-type]


def of_posterior(posterior: Posterior, logits: Tensor, z: Tensor) -> Opinion:
    """Aleatoric = expected entropy (eq. 4), total = entropy of the mean."""
    return Opinion(
        dirichlet.mean(posterior.alpha),
        dirichlet.expected_entropy(posterior.alpha),
        dirichlet.entropy_of_mean(posterior.alpha),
        logits,
        z,
        posterior.alpha,
        posterior.log_density,
    )


def of_logits(logits: Tensor, z: Tensor) -> Opinion:
    """A softmax cannot tell kinds of uncertainty apart: its entropy stands for both."""
    spread = softmax_entropy(logits)
    return Opinion(logits.softmax(-1), spread, spread, logits, z)


def softmax_entropy(logits: Tensor) -> Tensor:
    """Entropy of the softmax.

    >>> softmax_entropy(torch.zeros(2)).exp()
    tensor(2.)
    """
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
