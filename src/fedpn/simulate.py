"""All rounds in this process, clients stacked and mapped."""

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.aggregation import weighted_mean
from fedpn.algorithm import Data, FedAvg, Plan, Task, mapped, train
from fedpn.config import TrainConfig
from fedpn.data.dataset import Array
from fedpn.data.plan import draw, stack_plans, steps_of
from fedpn.trees import Slots, map_slots, public, stack, unstack

STACKED = 4_000_000  # parameters that are worth stacking at once: beyond, mapping gains nothing


class State(NamedTuple):
    """A federation between two rounds."""

    round: int  # rounds done
    server: Slots
    memories: list[Slots]


class Round(NamedTuple):
    """What the history tells of a round."""

    round: int
    loss: float
    joined: int
    seconds: float


def begin(algorithm: FedAvg, task: Task, params: dict[str, Tensor], labels: list[Tensor]) -> State:
    """Enrols every client with the labels of its training rows."""
    memories = [algorithm.enroll(task, params, mine) for mine in labels]
    return State(0, algorithm.init(task, params), memories)


def rounds(
    algorithm: FedAvg,
    task: Task,
    data: Data,
    rows: tuple[Array, ...],
    state: State,
    until: int,
    seed: int,
    options: TrainConfig,
) -> Iterator[tuple[State, Round]]:
    """Plays round after round; what is drawn depends on (seed, round, client) alone."""
    sizes = torch.tensor([len(r) for r in rows], dtype=torch.float64)
    size = options.cohort or cohort_size(state.server, state.memories[0])
    while state.round < until:
        began = time.perf_counter()
        joined = sample(len(rows), options.join, seed, state.round)
        sent = public(state.server)
        memories = list(state.memories)
        uploads, losses = [], []
        for cohort in np.array_split(joined, math.ceil(len(joined) / size)):
            plan = plan_round(rows, cohort, options, seed, state.round)
            stacked = stack([memories[c] for c in cohort])
            upload, new, loss = play(algorithm, task, data, sent, stacked, plan)
            for client, memory in zip(cohort, unstack(new, len(cohort)), strict=True):
                memories[client] = memory
            uploads.append(upload)
            losses.append(loss)
        merged = map_slots(lambda *ts: torch.cat(ts), *uploads)
        weights = sizes[joined]
        mean = weighted_mean(merged, weights)
        server = algorithm.aggregate(state.server, mean, len(joined) / len(rows))
        state = State(state.round + 1, server, memories)
        mean_loss = float((torch.cat(losses).double() * weights).sum() / weights.sum())
        yield state, Round(state.round, mean_loss, len(joined), time.perf_counter() - began)


def play(
    algorithm: FedAvg, task: Task, data: Data, server: Slots, memories: Slots, plan: Plan
) -> tuple[Slots, Slots, Tensor]:
    """Maps `train` over stacked clients; a single one is called plainly, without overhead."""

    def client(memory: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
        return train(algorithm, task, data, server, memory, plan)

    played: tuple[Slots, Slots, Tensor] = mapped(client, memories, plan)
    return played


def sample(clients: int, share: float, seed: int, round_: int) -> Array:
    """Draws who joins a round: the same for every algorithm."""
    count = max(round(share * clients), 1)
    return np.sort(np.random.default_rng([seed, 4, round_]).permutation(clients)[:count])


def plan_round(
    rows: tuple[Array, ...], cohort: Array, options: TrainConfig, seed: int, round_: int
) -> Plan:
    """Draws each client's batches of a round."""
    plans = []
    for client in cohort:
        mine = rows[client]
        steps = options.steps or steps_of(len(mine), options.batch, options.epochs)
        plans.append(draw(mine, steps, options.batch, (seed, 5, round_, int(client))))
    return stack_plans(plans)


def cohort_size(server: Slots, memory: Slots) -> int:
    """How many clients to stack, by the size of a client's model."""
    size = sum(t.numel() for t in (server["model"] | memory["model"]).values())
    return max(1, STACKED // size)
