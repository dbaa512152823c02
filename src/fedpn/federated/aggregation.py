"""Means of stacked uploads: pure functions of what clients moved by, and of their weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedpn.core.bounds import Bounds, NonNegative, Positive, Share
from fedpn.core.noise import Source, normal
from fedpn.core.trees import Slots, is_wide, map_slots


@dataclass(frozen=True)
class AggregationSettings:
    """How uploads become one: `private` clips each and adds Gaussian noise to their mean."""

    rule: Annotated[
        Literal["mean", "median", "trimmed", "krum", "multikrum", "private"],
        "mean: weighted by clients' rows; private: each clipped, with noise on the mean; the "
        "others: sound though some clients mean harm",
    ] = "mean"
    byzantine: Annotated[Share, "the share of clients that robust means are prepared for"] = 0.2
    clip: Annotated[Positive, "the norm to which `private` bounds what a client moves by"] = 1.0
    noise: Annotated[NonNegative, "its standard deviation, in units of the clip"] = 1.0
    delta: Annotated[float, Bounds(above=0, below=1), "of the (ε, δ) account"] = 1e-5
    repeatable: Annotated[
        bool, "noise is drawn from the seed, for research: then it protects nobody"
    ] = False


def weighted_sum(moves: Slots, weights: Tensor) -> Slots:
    """Sums over the leading (client) axis.

    >>> weighted_sum({"model": {"w": torch.tensor([1.0, 2.0])}}, torch.tensor([1.0, 3.0]))
    {'model': {'w': tensor(7.)}}
    """

    def one(t: Tensor) -> Tensor:
        t = t if is_wide(t) else t.double()
        summed: Tensor = torch.tensordot(weights.to(t), t, 1)
        return summed

    return map_slots(one, moves)


def weighted_mean(moves: Slots, weights: Tensor) -> Slots:
    """Averages by weight.

    >>> weighted_mean({"model": {"w": torch.tensor([1.0, 2.0])}}, torch.tensor([1.0, 3.0]))
    {'model': {'w': tensor(1.7500)}}
    """
    return weighted_sum(moves, weights / weights.sum())


def trimmed_mean(moves: Slots, cut: int) -> Slots:
    """Drops the `cut` smallest and largest of each coordinate (Yin et al., 2018).

    >>> trimmed_mean({"model": {"w": torch.tensor([1.0, 2.0, 3.0, 99.0])}}, cut=1)
    {'model': {'w': tensor(2.5000)}}
    """
    return map_slots(lambda t: t.sort(0).values[cut : len(t) - cut].mean(0), moves)


def median(moves: Slots) -> Slots:
    """The coordinate-wise median (Yin et al., 2018): all but the middle one or two are cut."""
    count = next(len(t) for params in moves.values() for t in params.values())
    return trimmed_mean(moves, (count - 1) // 2)


def krum(moves: Slots, byzantine: int, keep: int) -> Slots:
    """Averages the `keep` uploads that lie closest to their neighbours (Blanchard et al., 2017).

    Of five with one liar, two neighbours count: 1 has the least, 1 + 4; then 0, then 3.

    >>> moves = {"model": {"w": torch.tensor([[0.0], [1.0], [3.0], [7.0], [50.0]])}}
    >>> [float(krum(moves, 1, keep)["model"]["w"]) for keep in (1, 2, 3)]
    [1.0, 0.5, 1.3333333730697632]
    """
    flat = torch.cat([t.reshape(len(t), -1) for t in moves["model"].values()], 1)
    distances = torch.cdist(flat, flat).square()
    neighbours = max(len(flat) - byzantine - 2, 1)
    # Each is nearest to itself: that one does not count.
    scores = distances.sort(1).values[:, 1 : neighbours + 1].sum(1)
    best = scores.argsort(stable=True)[:keep]
    return map_slots(lambda t: t[best].mean(0), moves)


def norms(moves: Slots) -> Tensor:
    """The length of each client's move, over all slots that it sends: [C]."""
    tensors = [t for params in moves.values() for t in params.values()]
    squares = [t.reshape(len(t), -1).square().sum(1) for t in tensors]
    length: Tensor = torch.stack(squares).sum(0).sqrt()
    return length


def private_mean(moves: Slots, clip: float, noise: float, source: Source) -> Slots:
    """Clips each move to a norm, averages evenly, adds Gaussian noise (McMahan et al., 2018)."""
    scale = (clip / norms(moves).clamp(min=clip)).to(torch.float64)
    count = len(scale)

    def one(t: Tensor) -> Tensor:
        mean: Tensor = torch.tensordot(scale.to(t), t, 1) / count
        return mean + (noise * clip / count * normal(mean.shape, source)).to(mean)

    # By name: the order of entries is that of whoever computed them, and the noise may be seeded.
    found = {role: {n: one(moves[role][n]) for n in sorted(moves[role])} for role in sorted(moves)}
    return {role: {name: found[role][name] for name in params} for role, params in moves.items()}


def counts_rule(config: AggregationSettings, moves: Slots) -> Slots:
    """What becomes of integers and booleans, which no rule compares or bounds by length.

    Robust rules take their median. Under `private` they stay as they were: nothing is told of them.
    """
    if config.rule == "private":
        return map_slots(lambda t: torch.zeros_like(t[0]), moves)
    return median(moves) if any(moves.values()) else moves


def make_rule(config: AggregationSettings, source: Source) -> Callable[[Slots, Tensor], Slots]:
    """The chosen rule as a function of stacked moves and weights."""

    def byzantine(moves: Slots) -> int:
        count = len(next(iter(moves["model"].values())))
        return int(config.byzantine * count)

    def some(moves: Slots) -> int:
        count = len(next(iter(moves["model"].values())))
        return min(byzantine(moves), (count - 1) // 2)

    return {
        "mean": weighted_mean,
        "median": lambda moves, weights: median(moves),
        "trimmed": lambda moves, weights: trimmed_mean(moves, some(moves)),
        "krum": lambda moves, weights: krum(moves, byzantine(moves), 1),
        "multikrum": lambda moves, weights: krum(
            moves, byzantine(moves), max(len(weights) - byzantine(moves), 1)
        ),
        "private": lambda moves, weights: private_mean(moves, config.clip, config.noise, source),
    }[config.rule]
