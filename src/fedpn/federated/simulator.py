"""All rounds in this process, clients stacked and mapped."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg, mapped, train
from fedpn.core.errors import UserError
from fedpn.core.parallel import cohorts_of, lanes, side_by_side
from fedpn.core.task import Data, Plan, Task
from fedpn.core.trees import Params, Slots, map_slots, public, stack, unstack
from fedpn.data.batches import draw, stack_plans, steps_of
from fedpn.data.dataset import Array
from fedpn.federated.aggregation import AggregationConfig
from fedpn.federated.gather import Gatherer, Part
from fedpn.federated.memories import Memories
from fedpn.runs.config import FaultConfig, TrainConfig

STACKED = 4_000_000  # parameters that are worth stacking at once: beyond, mapping gains nothing


class State(NamedTuple):
    """A federation between two rounds; memories are its one mutable part."""

    round: int  # rounds done
    server: Slots
    memories: Memories


class Round(NamedTuple):
    """What the history tells of a round."""

    round: int
    loss: float | None
    joined: int
    dropped: list[int]  # vanished before they could upload
    refused: list[int]  # uploaded what is not finite, or too long a move
    norm: float  # of the server's move
    seconds: float


class Played(NamedTuple):
    """What a cohort uploads, and what its clients remember."""

    memories: dict[int, Slots]
    refused: list[int]
    part: Part
    loss: Tensor  # of all, weighted


@dataclass(frozen=True)
class Engine:
    """Plays the rounds of one federation."""

    algorithm: FedAvg
    task: Task
    data: Data
    rows: tuple[Array, ...]
    seed: int
    work: TrainConfig
    faults: FaultConfig = field(default_factory=FaultConfig)
    aggregation: AggregationConfig = field(default_factory=AggregationConfig)

    @cached_property
    def gatherer(self) -> Gatherer:
        return Gatherer(self.algorithm, self.seed, self.aggregation, self.faults.max_norm)

    def rounds(self, state: State, until: int) -> Iterator[tuple[State, Round]]:
        """Plays round after round; what is drawn depends on (seed, round, client) alone."""
        empty = played = 0
        while state.round < until:
            began = time.perf_counter()
            server, record = self._round(state)
            state = State(state.round + 1, server, state.memories)
            yield state, record._replace(seconds=time.perf_counter() - began)
            played += 1
            empty = 0 if record.loss is not None else empty + 1
            if empty >= self.faults.patience or (empty == played and state.round == until):
                raise UserError(
                    f"{empty} round{'s' * (empty > 1)} in a row had no valid upload: all clients "
                    f"diverged or vanished; lower the learning rate, {self.algorithm.lr:g}, or "
                    "faults.dropout"
                )

    def _round(self, state: State) -> tuple[Slots, Round]:
        joined = sample(len(self.rows), self.work.join, self.seed, state.round)
        gone = _some(joined, self.faults.dropout, (self.seed, 9, state.round))
        there = joined[~np.isin(joined, gone)]
        sent = public(state.server)
        size = self.work.cohort or cohort_size(sent, state.memories[0])
        beside = lanes(self.data.x.device)
        cohorts = cohorts_of(there, size, beside)
        parts: list[Part] = []
        refused: list[int] = []
        loss = 0.0
        for played in side_by_side(lambda c: self._cohort(state, sent, c), cohorts, beside):
            refused += played.refused
            for client, memory in played.memories.items():
                state.memories[client] = memory
            if len(played.part.weights):
                parts.append(played.part)
                loss += float(played.loss)
        record = Round(state.round + 1, None, len(joined), gone.tolist(), refused, 0.0, 0.0)
        if not parts:
            return state.server, record
        total = float(sum(part.weights.sum() for part in parts))
        server, norm = self.gatherer.advance(state.server, sent, parts, len(self.rows), state.round)
        return server, record._replace(loss=loss / total, norm=norm)

    def _cohort(self, state: State, sent: Slots, cohort: Array) -> Played:
        """Plays a cohort's part of a round, and looks at what it uploads."""
        slow, device = self.faults.stragglers, self.data.x.device
        plan = plan_round(self.rows, cohort, self.work, self.seed, state.round, slow)
        plan = Plan(*(t.to(device) for t in plan))
        stacked = stack([state.memories[c] for c in cohort])
        stacked = map_slots(lambda t: t.to(device), stacked)
        upload, memories, losses = self.play(sent, stacked, plan)
        good = self.gatherer.valid(sent, upload, len(cohort)) & losses.isfinite().cpu()
        news = dict(zip(cohort.tolist(), unstack(memories, len(cohort)), strict=True))
        refused = cohort[~good.numpy()].tolist()
        weights = torch.tensor([float(len(self.rows[c])) for c in cohort])[good]
        if refused:
            upload = map_slots(lambda t: t[good], upload)
        return Played(
            {client: memory for client, memory in news.items() if client not in refused},
            refused,
            self.gatherer.part(upload, weights),
            (losses.cpu()[good].double() * weights).sum(),
        )

    def play(self, server: Slots, memories: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
        """Maps `train` over stacked clients."""
        idle = bool((plan.rows < 0).any())

        def client(memory: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
            return train(self.algorithm, self.task, self.data, server, memory, plan, idle)

        played: tuple[Slots, Slots, Tensor] = mapped(client, memories, plan)
        return played


def begin(
    algorithm: FedAvg, task: Task, params: Params, labels: list[Tensor], path: Path | None = None
) -> State:
    """Enrols every client with the labels of its training rows, once it joins."""

    def enroll(client: int) -> Slots:
        return algorithm.enroll(task, params, labels[client])

    return State(0, algorithm.init(task, params), Memories(enroll, len(labels), path))


def sample(clients: int, share: float, seed: int, round_: int) -> Array:
    """Draws who joins a round: the same for every algorithm."""
    count = joining(clients, share)
    return np.sort(np.random.default_rng([seed, 4, round_]).permutation(clients)[:count])


def joining(clients: int, share: float) -> int:
    """How many clients join a round.

    >>> joining(20, 0.25), joining(20, 0.001)
    (5, 1)
    """
    return max(round(share * clients), 1)


def plan_round(
    rows: tuple[Array, ...],
    cohort: Array,
    work: TrainConfig,
    seed: int,
    round_: int,
    stragglers: float = 0.0,
) -> Plan:
    """Draws each client's batches of a round; stragglers do only some of their steps."""
    return stack_plans(
        [plan_client(rows[c], c, work, seed, round_, stragglers) for c in map(int, cohort)]
    )


def plan_client(
    rows: Array, client: int, work: TrainConfig, seed: int, round_: int, stragglers: float = 0.0
) -> Array:
    """Draws one client's batches of a round."""
    steps = steps_of(len(rows), work.batch, work.epochs) if work.epochs else work.steps
    plan = draw(rows, steps, work.batch, (seed, 5, round_, client))
    rng = np.random.default_rng((seed, 10, round_, client))
    if rng.random() < stragglers:
        plan = plan[: rng.integers(1, max(steps, 2))]
    return plan


def _some(clients: Array, share: float, seed: tuple[int, ...]) -> Array:
    """Draws each client with a chance."""
    return clients[np.random.default_rng(seed).random(len(clients)) < share]


def cohort_size(server: Slots, memory: Slots) -> int:
    """How many clients to stack, by the size of a client's model."""
    size = sum(t.numel() for t in (server["model"] | memory["model"]).values())
    return max(1, STACKED // size)
