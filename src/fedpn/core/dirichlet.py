"""Closed-form Dirichlet maths that keeps its digits.

Every measure takes `alpha [..., K]` and returns `[...]`. Naively they are differences of huge,
nearly equal numbers once a model has seen much evidence (at α₀ = 1e21 even float64 loses all of
the entropy's digits). Here each is written so that what cancels is cancelled on paper: what is
left are sums of terms of one sign, or of the size of the result. With, for all x > 0,

    ψ(x) = log x − e(x),    v(x) = x·e(x) = 1/2 + 1/(12x) − …,    ψ(x + 1) = ψ(x) + 1/x,

the digamma and log-gamma functions leave only `e`, `v` and Stirling's remainder, all tame.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# Where the asymptotic series take over: there, their first dropped term is below 1e-8.
_FAR = 4
_SHIFTS = 6
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Posterior(NamedTuple):
    """What a posterior network says of a batch: Dir(α), α = 1 + evidence · probs (eqs. 1, 2)."""

    alpha: Tensor  # [B, K]
    log_evidence: Tensor  # [B]
    log_density: Tensor  # [B], log p(z)
    probs: Tensor  # [B, K], f(z)


def others(alpha: Tensor) -> Tensor:
    """Returns α₀ − αᵢ for all i, as a sum of the others: a difference would cancel.

    >>> others(torch.tensor([1.0, 2.0, 4.0]))
    tensor([6., 5., 3.])
    """
    zero = torch.zeros_like(alpha[..., :1])
    below = torch.cat([zero, alpha[..., :-1]], -1).cumsum(-1)
    above = torch.cat([alpha[..., 1:], zero], -1).flip(-1).cumsum(-1).flip(-1)
    return below + above


def digamma_gap(x: Tensor, d: Tensor) -> Tensor:
    """Returns ψ(x + d) − ψ(x) for x > 0, d ≥ 0 without cancellation.

    The recurrence carries x beyond 6, the series does the rest; all leading terms are positive.
    """
    gap = torch.zeros_like(x)
    for k in range(_SHIFTS):
        gap = gap + d / (x + d + k) / (x + k)
    x = x + _SHIFTS
    u, w = 1 / x, 1 / (x + d)
    first = d * u * w  # 1/x − 1/(x+d)
    second = first * (u + w)  # 1/x² − 1/(x+d)²
    fourth = second * (u * u + w * w)
    sixth = fourth * (u * u + w * w) - second * (u * w) ** 2
    return gap + torch.log1p(d * u) + first / 2 + second / 12 - fourth / 120 + sixth / 252


def _v(x: Tensor) -> Tensor:
    """Returns x · (log x − ψ(x)): from 1 at 0 down to 1/2."""
    u = 1 / x.clamp(min=_FAR)
    far = 0.5 + u / 12 * (1 - u * u / 10 * (1 - u * u * (10 / 21) * (1 - u * u * (21 / 20))))
    near = x.clamp(max=_FAR)
    return torch.where(x < _FAR, near * (near.log() - torch.digamma(near)), far)


def _stirling(x: Tensor) -> Tensor:
    """Returns log Γ(x) − [(x − ½) log x − x + ½ log 2π]."""
    u = 1 / x.clamp(min=_FAR)
    far = u / 12 * (1 - u * u / 30 * (1 - u * u * (2 / 7) * (1 - u * u * (3 / 4))))
    near = x.clamp(max=_FAR)
    return torch.where(
        x < _FAR, torch.lgamma(near) - (near - 0.5) * near.log() + near - _HALF_LOG_2PI, far
    )


def mean(alpha: Tensor) -> Tensor:
    """The predictive distribution, E[μ] = α / α₀.

    >>> mean(torch.tensor([1.0, 3.0]))
    tensor([0.2500, 0.7500])
    """
    return alpha / alpha.sum(-1, keepdim=True)


def entropy(alpha: Tensor) -> Tensor:
    """Differential entropy of Dir(α) (eq. 3): the paper's epistemic uncertainty."""
    k = alpha.shape[-1]
    total = alpha.sum(-1)
    each = _stirling(alpha) + _v(alpha) * (1 - 1 / alpha)
    whole = _stirling(total) + _v(total) * (1 - k / total)
    logs = 0.5 * alpha.log().sum(-1) - (k - 0.5) * total.log()
    return logs + (k - 1) * _HALF_LOG_2PI + each.sum(-1) - whole


def expected_entropy(alpha: Tensor) -> Tensor:
    """E[H[Cat(μ)]] (eq. 4): aleatoric uncertainty."""
    return (mean(alpha) * digamma_gap(alpha + 1, others(alpha))).sum(-1)


def entropy_of_mean(alpha: Tensor) -> Tensor:
    """H[E[μ]]: total uncertainty, aleatoric + mutual information."""
    return (mean(alpha) * torch.log1p(others(alpha) / alpha)).sum(-1)


def mutual_information(alpha: Tensor) -> Tensor:
    """I[y, μ] = H[E[μ]] − E[H[Cat(μ)]]: what knowing μ would tell of the label."""
    return ((1 - _v(alpha)).sum(-1) - (1 - _v(alpha.sum(-1)))) / alpha.sum(-1)


def reverse_mutual_information(alpha: Tensor) -> Tensor:
    """E[KL(E[μ] ‖ μ)] (Malinin & Gales, 2019; 2021)."""
    return (_v(alpha).sum(-1) - _v(alpha.sum(-1))) / alpha.sum(-1)


def expected_pairwise_kl(alpha: Tensor) -> Tensor:
    """E[KL(μ ‖ μ′)] of two independent draws, (K − 1) / α₀: mutual information + its reverse.

    >>> expected_pairwise_kl(torch.ones(4))
    tensor(0.7500)
    """
    return (alpha.shape[-1] - 1) / alpha.sum(-1)


def uncertain_cross_entropy(alpha: Tensor, labels: Tensor) -> Tensor:
    """E[−log μ_y] = ψ(α₀) − ψ(α_y) (eq. 5)."""
    label = labels.unsqueeze(-1)
    rest = others(alpha).gather(-1, label).squeeze(-1)
    return digamma_gap(alpha.gather(-1, label).squeeze(-1), rest)
