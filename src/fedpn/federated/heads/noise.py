"""Gaussian noise on the sums of a head: no single row shows in what the server goes on with.

The server adds it, to sums that it has seen: noise is for those who get the model, and `--secure`
is what hides single clients' sums from the server.

Rows are bounded first: a contrast-normalised patch is no longer than √P, φ is cut to a length C, a
loss to LOSS. So replacing one row changes each sum by a bounded length Δ, and noise of σ·Δ on it is
a Gaussian mechanism. All releases of a head compose to (ε, δ), for each row of each client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpn.core.noise import normal
from fedpn.core.trees import Slots
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site

LOSS = 10.0  # to which a calibration row's loss is cut
RELEASES = 5  # class counts, patch moments, G, B, losses

Lengths = Callable[[Slots], Mapping[str, Mapping[str, float]]]  # sums -> Δ of each


@dataclass(frozen=True)
class Noisy(Phase):
    """A phase whose server goes on with noised sums alone."""

    inner: Phase
    noise: float  # σ, in units of what one row can change
    lengths: Lengths
    name: str = ""  # type: ignore[misc]

    sums: ClassVar[bool] = True

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        return self.inner.client(site, sent, memory)

    def reads(self, server: Slots) -> Slots:
        return self.inner.reads(server)

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return self.inner.objection(statistics, rows)

    def server(self, server: Slots, total: Total) -> Slots:
        lengths = self.lengths(total.sum)
        noisy = {
            role: {
                name: t + (self.noise * lengths[role][name] * normal(t.shape)).to(t)
                for name, t in params.items()
            }
            for role, params in total.sum.items()
        }
        return self.inner.server(server, replace(total, sum=noisy))


def noisy(phase: Phase, noise: float, lengths: Lengths) -> Phase:
    """The phase under noise, where there is any."""
    return Noisy(phase, noise, lengths, phase.name) if noise else phase


def survey_lengths(sums: Slots) -> Mapping[str, Mapping[str, float]]:
    """Of class counts, and of mean patches and their products; how many rows is no secret."""
    pixels = len(sums["patches"]["total"])
    moments = 2 * (pixels + pixels**2) ** 0.5  # both at once
    return {
        "classes": {"counts": 2**0.5},
        "patches": {"rows": 0.0, "total": moments, "outer": moments},
    }


def gram_lengths(clip: float) -> Lengths:
    """Of φφᵀ and φyᵀ, with φ of at most C beside its 1."""
    square = clip**2 + 1
    return lambda sums: {"sums": {"gram": 2**0.5 * square, "cross": 2**0.5 * square**0.5}}


def choose_lengths(sums: Slots) -> Mapping[str, Mapping[str, float]]:
    """Of losses over a grid."""
    return {"sums": {"loss": LOSS * sums["sums"]["loss"].numel() ** 0.5}}


def nearest_psd(gram: Tensor) -> Tensor:
    """A noisy Gram matrix without the negative part that noise has given it.

    >>> nearest_psd(torch.tensor([[1.0, 0.0], [0.0, -2.0]]))
    tensor([[1., 0.],
            [0., 0.]])
    """
    values, vectors = torch.linalg.eigh(gram)
    positive: Tensor = (vectors * values.clamp(min=0)) @ vectors.T
    return positive
