"""What a server does with statistics, whoever sent them: refuse the broken, add up the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import noise
from fedpn.core.trees import Slots, is_wide, map_slots, move, moved_by, not_finite, split
from fedpn.federated.aggregation import (
    AggregationSettings,
    counts_rule,
    make_rule,
    norms,
    weighted_sum,
)


class Part(NamedTuple):
    """Statistics of some clients: stacked, or summed already where the rule allows."""

    slots: Slots
    weights: Tensor  # [clients]


@dataclass(frozen=True)
class Total:
    """All that a server learns of a turn: Σ wₖ·sₖ and Σ wₖ, of a share of the clients.

    Of what has no mean in its own type (integers, booleans, halves) the sum is that of moves, in
    float64, from what was `sent`.
    """

    sum: Slots
    weight: float
    share: float = 1.0
    sent: Slots = field(default_factory=dict)

    @cached_property
    def mean(self) -> Slots:
        """The mean, each entry in the type in which it was sent."""

        def one(role: str, name: str, mean: Tensor) -> Tensor:
            before = self.sent.get(role, {}).get(name, mean)
            return mean if is_wide(before) else moved_by(before, mean)

        return {
            role: {name: one(role, name, t / self.weight) for name, t in params.items()}
            for role, params in self.sum.items()
        }


@dataclass(frozen=True)
class Gatherer:
    """Turns the statistics of a turn into a total, under the rule of the settings."""

    seed: int
    rule: AggregationSettings = field(default_factory=AggregationSettings)
    max_norm: float = 0.0  # longer moves of the model are refused; 0: any length will do

    def valid(self, sent: Slots, uploads: Slots, count: int) -> Tensor:
        """Tells which of stacked uploads are finite and, where a bound is set, within it."""
        tensors = [t for params in uploads.values() for t in params.values()]
        checks = [t.reshape(count, -1).isfinite().all(1) for t in tensors]
        if self.max_norm and uploads.get("model") and sent.get("model"):
            checks.append(lengths(sent, uploads) <= self.max_norm)
        good = torch.stack(checks).all(0) if checks else torch.ones(count, dtype=torch.bool)
        return good.cpu()

    def objection(self, sent: Slots, upload: Slots) -> str:
        """What is wrong with one client's upload, where something is."""
        name = not_finite(upload)
        if name:
            return f"{name} is not finite"
        if self.max_norm and upload.get("model") and sent.get("model"):
            alone = map_slots(lambda t: t[None], upload)
            length = float(lengths(sent, alone))
            if length > self.max_norm:
                return f"its model moved by {length:.3g}, and faults.max_norm is {self.max_norm:g}"
        return ""

    def part(self, sent: Slots, uploads: Slots, weights: Tensor, is_move: bool) -> Part:
        """Sums stacked uploads at once where the rule allows, so that they need not be kept."""
        if is_move and self.rule.rule != "mean":
            return Part(uploads, weights)
        if is_move:
            wide, narrow = by_type(sent, uploads)
            uploads = _merged(uploads, wide, moves(sent, narrow))
        return Part(weighted_sum(uploads, weights), weights)

    def collect(self, parts: list[Part], part: Part, is_move: bool) -> list[Part]:
        """Adds a part to those that are there; sums are kept as one, so that memory stays small."""
        if is_move or not parts:
            return [*parts, part]
        (before,) = parts
        together = map_slots(torch.add, before.slots, part.slots)
        return [Part(together, torch.cat([before.weights, part.weights]))]

    def total(
        self, sent: Slots, parts: Sequence[Part], round_: int, is_move: bool, clients: int
    ) -> Total:
        """Brings together what was gathered; of moves by the rule, of other sums plainly."""
        weights = torch.cat([part.weights for part in parts])
        weight, slots = float(weights.sum()), [part.slots for part in parts]
        share = len(weights) / clients
        if self.rule.rule == "mean" or not is_move:
            sums = map_slots(lambda *ts: torch.stack(ts).sum(0), *slots)
            return Total(sums, weight, share, sent if is_move else {})
        uploads = map_slots(lambda *ts: torch.cat(ts), *slots)
        wide, narrow = by_type(sent, uploads)
        # Noise that others could draw again would protect nobody.
        seeded = noise.keyed(f"noise {self.seed} {round_}".encode())
        source = seeded if self.rule.repeatable else noise.system
        moved = make_rule(self.rule, source)(moves(sent, wide), weights)
        mean = {r: {n: sent[r][n] + t for n, t in params.items()} for r, params in moved.items()}
        found = _merged(uploads, mean, counts_rule(self.rule, moves(sent, narrow)))
        return Total(map_slots(lambda t: t * weight, found), weight, share, sent)


def by_type(sent: Slots, uploads: Slots) -> tuple[Slots, Slots]:
    """Entries whose own type holds means, and the others that were sent; each with all roles."""
    wide: Slots = {}
    narrow: Slots = {}
    for role, params in uploads.items():
        names = {n for n, t in params.items() if not is_wide(t)} & sent.get(role, {}).keys()
        narrow[role], wide[role] = split(params, names.__contains__)
    return wide, narrow


def _merged(like: Slots, some: Slots, others: Slots) -> Slots:
    """Both, in the order of the first: sums over entries depend on it in the last bits."""
    found = {role: some[role] | others[role] for role in like}
    return {role: {name: found[role][name] for name in params} for role, params in like.items()}


def moves(sent: Slots, uploads: Slots) -> Slots:
    """What stacked uploads moved by."""
    return {
        role: {name: move(t, sent[role][name]) for name, t in params.items()}
        for role, params in uploads.items()
    }


def lengths(sent: Slots, uploads: Slots) -> Tensor:  # [C]
    """How far each client moved the model, counts apart: they have a unit of their own."""
    wide, _ = by_type(sent, {"model": uploads["model"]})
    return norms(moves(sent, wide))
