"""What a federation does, step by step: phases, whichever engine plays them.

A phase has a client's part, a pure function of the client's site, what the server sent and what
the client remembers; and a server's part, a function of the *sum* over clients alone. So weighted
means, robust means, noise and secure sums apply to any phase, or are refused in words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpn.core.task import Task
from fedpn.core.trees import Slots, map_slots, stack
from fedpn.data.dataset import Array
from fedpn.federated.gather import Total
from fedpn.federated.site import Site

Tick = Callable[[], None]
SUMS = "sums"  # of the server's state: what a head came from, and others can be added to


@dataclass(frozen=True)
class Reply:
    """What a client's part gives.

    `statistics` are for the server, which learns Σ weight·statistics; `memory` stays; `record`
    is what a phase tells of the client itself (its figures), where it tells anything.
    """

    memory: Slots
    statistics: Slots = field(default_factory=dict)
    weight: float = 1.0
    loss: float = 0.0
    record: Any = None


@dataclass(frozen=True)
class Replies:
    """The same of several clients, statistics stacked."""

    memories: list[Slots]
    statistics: Slots  # [C, ...]
    weights: Tensor  # [C]
    losses: Tensor  # [C]
    records: list[Any]


class Phase:
    """The template; override `client` and, where the server learns something, `server`."""

    name: ClassVar[str]
    sums: ClassVar[bool] = True  # whether the server adds statistics up; else clients go on alone
    is_move: ClassVar[bool] = False  # whether statistics are a model's new values
    open: ClassVar[bool] = False  # whether its sums are plain whatever the rule of aggregation
    wide: ClassVar[bool] = False  # whether sums may be of any size: columns have units of their own
    reach: ClassVar[float] = 1e3  # how many times as long as others' a client's sums may be, a row
    remembers: ClassVar[bool] = False  # whether clients' memories outlive the round
    stacks: ClassVar[bool] = False  # whether cohorts may be played side by side
    rounds: int = 1

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        """One client's part."""
        raise NotImplementedError

    def reads(self, server: Slots) -> Slots:
        """What of the server's state clients are sent: all, unless it is large and not read."""
        return server

    def prepare(self, sites: Sequence[Site]) -> None:
        """Computes what cohorts that are played side by side will share."""

    def cohort(
        self, sites: Sequence[Site], sent: Slots, memories: Sequence[Slots], tick: Tick
    ) -> Replies:
        """Several clients' parts: one after the other, unless the phase can stack them."""
        replies = []
        for site, memory in zip(sites, memories, strict=True):
            replies.append(self.client(site, sent, memory))
            tick()
        return _bring_together(replies)

    def ticks(self, sites: Sequence[Site]) -> int:
        """How often a cohort ticks, for progress."""
        return len(sites)

    def load(self, rows: int, task: Task) -> tuple[int, int]:
        """Return how many steps a client with so many training rows takes, and the rows that go
        through the whole network in each."""
        return 0, 0

    def server(self, server: Slots, total: Total) -> Slots:
        """The server after the phase, from the sum alone."""
        return server

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        """What is wrong with one client's statistics, where that can be told from them and from how
        many training rows it has."""
        return ""

    def joining(self, clients: int, round_: int) -> Array:
        """Who is asked: all, unless the phase samples."""
        return np.arange(clients)


def _bring_together(replies: Sequence[Reply]) -> Replies:
    """Stacks the statistics of single clients."""
    return Replies(
        [reply.memory for reply in replies],
        stack([reply.statistics for reply in replies]),
        torch.tensor([reply.weight for reply in replies], dtype=torch.float64),
        torch.tensor([reply.loss for reply in replies], dtype=torch.float64),
        [reply.record for reply in replies],
    )


def on_device(slots: Slots, device: torch.device) -> Slots:
    return map_slots(lambda t: t.to(device), slots)


def without_sums(server: Slots) -> Slots:
    """What answers to rows: many megabytes of sums are left out."""
    return {role: params for role, params in server.items() if role != SUMS}
