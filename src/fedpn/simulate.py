"""All rounds in this process, clients stacked and mapped."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.aggregation import AggregationConfig, make_rule, norms, weighted_sum
from fedpn.algorithm import Data, FedAvg, Plan, Task, mapped, train
from fedpn.config import FaultConfig, TrainConfig
from fedpn.data.dataset import Array
from fedpn.data.plan import draw, stack_plans, steps_of
from fedpn.memories import Memories
from fedpn.trees import Params, Slots, map_slots, public, stack, unstack
from fedpn.workers import cohorts_of, lanes, side_by_side

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


class Uploads(NamedTuple):
    """What a cohort sends, and what its clients remember."""

    memories: dict[int, Slots]
    refused: list[int]
    slots: Slots  # stacked, or summed already
    weights: Tensor
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
                raise RuntimeError(
                    f"{empty} rounds in a row had no valid upload: all clients vanished or diverged"
                )

    def _round(self, state: State) -> tuple[Slots, Round]:
        joined = sample(len(self.rows), self.work.join, self.seed, state.round)
        gone = _some(joined, self.faults.dropout, (self.seed, 9, state.round))
        there = joined[~np.isin(joined, gone)]
        sent = public(state.server)
        size = self.work.cohort or cohort_size(sent, state.memories[0])
        beside = lanes(self.data.x.device)
        cohorts = cohorts_of(there, size, beside)
        kept: list[Uploads] = []
        refused: list[int] = []
        for uploads in side_by_side(lambda c: self._cohort(state, sent, c), cohorts, beside):
            refused += uploads.refused
            for client, memory in uploads.memories.items():
                state.memories[client] = memory
            if len(uploads.weights):
                kept.append(uploads._replace(memories={}))
        record = Round(state.round + 1, None, len(joined), gone.tolist(), refused, 0.0, 0.0)
        if not kept:
            return state.server, record
        mean = self._mean(sent, kept, state.round)
        heard = sum(len(uploads.weights) for uploads in kept)
        total = float(sum(uploads.weights.sum() for uploads in kept))
        loss = float(sum(uploads.loss for uploads in kept)) / total
        server = self.algorithm.aggregate(state.server, mean, heard / len(self.rows))
        step = map_slots(torch.sub, {"model": server["model"]}, {"model": state.server["model"]})
        length = float(norms(map_slots(lambda t: t[None], step))) if step["model"] else 0.0
        return server, record._replace(loss=loss, norm=length)

    def _cohort(self, state: State, sent: Slots, cohort: Array) -> Uploads:
        """Plays a cohort's part of a round, and looks at what it uploads."""
        slow, device = self.faults.stragglers, self.data.x.device
        plan = plan_round(self.rows, cohort, self.work, self.seed, state.round, slow)
        plan = Plan(*(t.to(device) for t in plan))
        stacked = stack([state.memories[c] for c in cohort])
        stacked = map_slots(lambda t: t.to(device), stacked)
        upload, memories, losses = self.play(sent, stacked, plan)
        good = self._valid(sent, upload, len(cohort)) & losses.isfinite().cpu()
        news = dict(zip(cohort.tolist(), unstack(memories, len(cohort)), strict=True))
        refused = cohort[~good.numpy()].tolist()
        weights = torch.tensor([float(len(self.rows[c])) for c in cohort])[good]
        if refused:
            upload = map_slots(lambda t: t[good], upload)
        return Uploads(
            {client: memory for client, memory in news.items() if client not in refused},
            refused,
            self._reduced(upload, weights),
            weights,
            (losses.cpu()[good].double() * weights).sum(),
        )

    def play(self, server: Slots, memories: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
        """Maps `train` over stacked clients."""
        idle = bool((plan.rows < 0).any())

        def client(memory: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
            return train(self.algorithm, self.task, self.data, server, memory, plan, idle)

        played: tuple[Slots, Slots, Tensor] = mapped(client, memories, plan)
        return played

    def _valid(self, server: Slots, upload: Slots, count: int) -> Tensor:
        """Tells which uploads are finite and, where a bound is set, no longer than it."""
        good = torch.ones(count, dtype=torch.bool, device=self.data.x.device)
        for params in upload.values():
            for tensor in params.values():
                good &= tensor.reshape(count, -1).isfinite().all(1)
        if self.faults.max_norm and upload["model"]:
            good &= norms(moves(server, upload)) <= self.faults.max_norm
        return good.cpu()

    def _reduced(self, upload: Slots, weights: Tensor) -> Slots:
        """Sums a cohort at once where the rule allows, so that uploads need not be kept."""
        return weighted_sum(upload, weights) if self.aggregation.rule == "mean" else upload

    def _mean(self, server: Slots, kept: list[Uploads], round_: int) -> Slots:
        weights = torch.cat([uploads.weights for uploads in kept])
        slots = [uploads.slots for uploads in kept]
        if self.aggregation.rule == "mean":
            total = float(weights.sum())
            return map_slots(lambda *ts: torch.stack(ts).sum(0) / total, *slots)
        uploads = map_slots(lambda *ts: torch.cat(ts), *slots)
        seed = np.random.SeedSequence((self.seed, 12, round_)).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(seed[0] >> 1))
        move = make_rule(self.aggregation, generator)(moves(server, uploads), weights)
        return map_slots(torch.add, {role: server[role] for role in move}, move)


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
    plans = []
    for client in map(int, cohort):
        mine = rows[client]
        epochs = work.epochs
        steps = steps_of(len(mine), work.batch, epochs) if epochs else work.steps
        plan = draw(mine, steps, work.batch, (seed, 5, round_, client))
        rng = np.random.default_rng((seed, 10, round_, client))
        if rng.random() < stragglers:
            plan = plan[: rng.integers(1, max(steps, 2))]
        plans.append(plan)
    return stack_plans(plans)


def _some(clients: Array, share: float, seed: tuple[int, ...]) -> Array:
    """Draws each client with a chance."""
    return clients[np.random.default_rng(seed).random(len(clients)) < share]


def moves(server: Slots, uploads: Slots) -> Slots:
    """What stacked uploads moved by."""
    return {
        role: {name: t - server[role][name] for name, t in params.items()}
        for role, params in uploads.items()
    }


def cohort_size(server: Slots, memory: Slots) -> int:
    """How many clients to stack, by the size of a client's model."""
    size = sum(t.numel() for t in (server["model"] | memory["model"]).values())
    return max(1, STACKED // size)
