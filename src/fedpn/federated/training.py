"""The phase that repeats: a round of an algorithm's local steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg, mapped, train
from fedpn.core import seeds
from fedpn.core.task import Plan, Task
from fedpn.core.trees import Slots, in_types_of, stack, unstack
from fedpn.data.batches import draw, stack_plans, steps_of
from fedpn.data.dataset import Array
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Replies, Reply, Tick, on_device
from fedpn.federated.settings import TrainSettings
from fedpn.federated.site import Site


@dataclass(frozen=True)
class Train(Phase):
    """Rounds of local steps, their outcome averaged by rows."""

    method: FedAvg
    work: TrainSettings
    seed: int
    rounds: int = 1
    stragglers: float = 0.0  # the chance of a client to do only some of its steps

    name: ClassVar[str] = "federate"
    stacks: ClassVar[bool] = True
    is_move: ClassVar[bool] = True
    remembers: ClassVar[bool] = True

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        replies = self.cohort([site], sent, [memory], lambda: None)
        alone: Slots = unstack(replies.statistics, 1)[0]
        weight, loss = float(replies.weights), float(replies.losses)
        return Reply(replies.memories[0], alone, weight, loss)

    def cohort(
        self, sites: Sequence[Site], sent: Slots, memories: Sequence[Slots], tick: Tick
    ) -> Replies:
        setup = sites[0].setup
        rows = [site.to_draw(self.work.balance) for site in sites]
        pairs = zip(rows, sites, strict=True)
        drawn = stack_plans([self.plan(mine, site.client, site.round) for mine, site in pairs])
        plan = Plan(*(t.to(setup.device) for t in drawn))
        idle = bool((plan.rows < 0).any())
        task, data = setup.model.task, setup.data

        def client(memory: Slots, plan: Plan) -> tuple[Slots, Slots, Tensor]:
            return train(self.method, task, data, sent, memory, plan, idle)

        stacked = on_device(stack(memories), setup.device)
        upload, after, losses = mapped(task, client, stacked, plan)
        return Replies(
            unstack(after, len(sites)),
            upload,
            torch.tensor([float(len(site.train)) for site in sites]),
            losses.cpu(),
            [None] * len(sites),
        )

    def load(self, rows: int, task: Task) -> tuple[int, int]:
        work = self.work
        steps = steps_of(rows, work.batch, work.epochs) if work.epochs else work.steps
        return steps, work.batch

    def plan(self, rows: Array, client: int, round_: int) -> Array:
        """Draws one client's batches of a round; stragglers do only some of their steps."""
        work = self.work
        steps = steps_of(len(rows), work.batch, work.epochs) if work.epochs else work.steps
        plan = draw(rows, steps, work.batch, seeds.stream("batches", self.seed, round_, client))
        rng = seeds.stream("stragglers", self.seed, round_, client)
        if rng.random() < self.stragglers:
            plan = plan[: rng.integers(1, max(steps, 2))]
        return plan

    def server(self, server: Slots, total: Total) -> Slots:
        return in_types_of(self.method.aggregate(server, total.mean, total.share), server)

    def joining(self, clients: int, round_: int) -> Array:
        return sample(clients, self.work.join, self.seed, round_)


def sample(clients: int, share: float, seed: int, round_: int) -> Array:
    """Draws who joins a round: the same for every algorithm."""
    order = seeds.stream("sampling", seed, round_).permutation(clients)
    return np.sort(order[: joining(clients, share)])


def joining(clients: int, share: float) -> int:
    """How many clients join a round.

    >>> joining(20, 0.25), joining(20, 0.001)
    (5, 1)
    """
    return max(round(share * clients), 1)
