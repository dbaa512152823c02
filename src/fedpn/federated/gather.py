"""What a server does with uploads, whoever brought them: refuse the broken, average the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.trees import Slots, map_slots
from fedpn.federated.aggregation import AggregationConfig, make_rule, norms, weighted_sum


class Part(NamedTuple):
    """Uploads of some clients: stacked, or summed already where the rule allows."""

    slots: Slots
    weights: Tensor  # [clients]


class Advance(NamedTuple):
    """The server after a round, and how far its model went."""

    server: Slots
    norm: float


@dataclass(frozen=True)
class Gatherer:
    """Turns the uploads of a round into the next state of the server."""

    algorithm: FedAvg
    seed: int
    rule: AggregationConfig = field(default_factory=AggregationConfig)
    max_norm: float = 0.0  # longer moves of the model are refused; 0: any length will do

    def valid(self, sent: Slots, uploads: Slots, count: int) -> Tensor:
        """Tells which of stacked uploads are finite and, where a bound is set, within it."""
        tensors = [t for params in uploads.values() for t in params.values()]
        checks = [t.reshape(count, -1).isfinite().all(1) for t in tensors]
        if self.max_norm and uploads.get("model"):
            checks.append(norms(moves(sent, uploads)) <= self.max_norm)
        good = torch.stack(checks).all(0) if checks else torch.ones(count, dtype=torch.bool)
        return good.cpu()

    def part(self, uploads: Slots, weights: Tensor) -> Part:
        """Sums stacked uploads at once where the rule allows, so that they need not be kept."""
        summed = self.rule.rule == "mean"
        return Part(weighted_sum(uploads, weights) if summed else uploads, weights)

    def advance(
        self, server: Slots, sent: Slots, parts: Sequence[Part], clients: int, round_: int
    ) -> Advance:
        """Moves the server by the mean of what was gathered from some of all clients."""
        heard = sum(len(part.weights) for part in parts)
        return self.settle(server, self._mean(sent, parts, round_), heard / clients)

    def settle(self, server: Slots, mean: Slots, share: float) -> Advance:
        """Moves the server by the mean upload of a share of the clients."""
        new = self.algorithm.aggregate(server, mean, share)
        step = map_slots(torch.sub, {"model": new["model"]}, {"model": server["model"]})
        length = float(norms(map_slots(lambda t: t[None], step))) if step["model"] else 0.0
        return Advance(new, length)

    def _mean(self, sent: Slots, parts: Sequence[Part], round_: int) -> Slots:
        weights = torch.cat([part.weights for part in parts])
        slots = [part.slots for part in parts]
        if self.rule.rule == "mean":
            total = float(weights.sum())
            return map_slots(lambda *ts: torch.stack(ts).sum(0) / total, *slots)
        uploads = map_slots(lambda *ts: torch.cat(ts), *slots)
        seed = np.random.SeedSequence((self.seed, 12, round_)).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(seed[0] >> 1))
        move = make_rule(self.rule, generator)(moves(sent, uploads), weights)
        return map_slots(torch.add, {role: sent[role] for role in move}, move)


def moves(sent: Slots, uploads: Slots) -> Slots:
    """What stacked uploads moved by."""
    return {
        role: {name: t - sent[role][name] for name, t in params.items()}
        for role, params in uploads.items()
    }
