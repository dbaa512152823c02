"""What a server does with statistics, whoever sent them: refuse the broken, add up the rest."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import seeds
from fedpn.core.trees import Slots, map_slots, not_finite
from fedpn.federated.aggregation import AggregationSettings, make_rule, norms, weighted_sum


class Part(NamedTuple):
    """Statistics of some clients: stacked, or summed already where the rule allows."""

    slots: Slots
    weights: Tensor  # [clients]


@dataclass(frozen=True)
class Total:
    """All that a server learns of a turn: Σ wₖ·sₖ and Σ wₖ, of a share of the clients."""

    sum: Slots
    weight: float
    share: float = 1.0

    @cached_property
    def mean(self) -> Slots:
        return map_slots(lambda t: t / self.weight, self.sum)


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
            checks.append(norms(_of_model(moves(sent, uploads))) <= self.max_norm)
        good = torch.stack(checks).all(0) if checks else torch.ones(count, dtype=torch.bool)
        return good.cpu()

    def objection(self, sent: Slots, upload: Slots) -> str:
        """What is wrong with one client's upload, where something is."""
        name = not_finite(upload)
        if name:
            return f"{name} is not finite"
        if self.max_norm and upload.get("model") and sent.get("model"):
            alone = map_slots(lambda t: t[None], upload)
            length = float(norms(_of_model(moves(sent, alone))))
            if length > self.max_norm:
                return f"its model moved by {length:.3g}, and faults.max_norm is {self.max_norm:g}"
        return ""

    def part(self, uploads: Slots, weights: Tensor, is_move: bool) -> Part:
        """Sums stacked uploads at once where the rule allows, so that they need not be kept."""
        summed = self.rule.rule == "mean" or not is_move
        return Part(weighted_sum(uploads, weights) if summed else uploads, weights)

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
            return Total(sums, weight, share)
        uploads = map_slots(lambda *ts: torch.cat(ts), *slots)
        # Noise that others could draw again would protect nobody.
        drawn = seeds.torch_seed("noise", self.seed, round_)
        number = drawn if self.rule.repeatable else secrets.randbits(63)
        generator = torch.Generator().manual_seed(number)
        move = make_rule(self.rule, generator)(moves(sent, uploads), weights)
        mean = map_slots(torch.add, {role: sent[role] for role in move}, move)
        return Total(map_slots(lambda t: t * weight, mean), weight, share)


def _of_model(moved: Slots) -> Slots:
    return {"model": moved["model"]}


def moves(sent: Slots, uploads: Slots) -> Slots:
    """What stacked uploads moved by."""
    return {
        role: {name: t - sent[role][name] for name, t in params.items()}
        for role, params in uploads.items()
    }
