"""All clients in this process: stacked and mapped where a phase allows, else one by one."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import ONE_BY_ONE, FedAvg
from fedpn.core import metrics, seeds
from fedpn.core.errors import UserError
from fedpn.core.parallel import cohorts_of, lanes, side_by_side
from fedpn.core.trees import Params, Slots, map_slots, not_finite, public, weigh
from fedpn.data.dataset import Array
from fedpn.data.describe import client_name
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.attack import attackers, spoil_rows, spoil_uploads
from fedpn.federated.checkpoint import State
from fedpn.federated.conductor import Heard
from fedpn.federated.gather import Gatherer, Part
from fedpn.federated.listener import Listener, Stopped
from fedpn.federated.memories import Memories
from fedpn.federated.phase import Phase, Replies
from fedpn.federated.settings import FaultSettings
from fedpn.federated.site import Setup, Site
from fedpn.nn.task import operations

LONG = (
    2e8  # operations of a step from which on mapping makes it longer: grouped convolutions are slow
)
CALL, LEAST = 6e7, 4e6  # what calling a mapped step costs once and for each client, in operations
STACKED = 4_000_000  # parameters that are worth stacking at once: beyond, mapping gains nothing
PROBE = 1000  # calibration rows that follow the global model's accuracy through the rounds


@dataclass(frozen=True)
class Played:
    """What a cohort sends, once what cannot count is refused."""

    cohort: Array
    replies: Replies
    good: Tensor  # [C]
    part: Part
    loss: float  # of all that count, weighted


class Simulator:
    """A transport without messages."""

    def __init__(
        self,
        setup: Setup,
        method: FedAvg,
        seed: int,
        faults: FaultSettings | None = None,
        aggregation: AggregationSettings | None = None,
        cohort: int = 0,
        path: Path | None = None,
    ) -> None:
        self.method, self.seed, self.faults = method, seed, faults or FaultSettings()
        data = spoil_rows(self.faults, setup.data, setup.federation, seed)
        self.setup = setup if data is setup.data else replace(setup, data=data)
        self.attackers = attackers(self.faults, setup.federation.clients, seed)
        self.gatherer = Gatherer(seed, aggregation or AggregationSettings(), self.faults.max_norm)
        self.asked_cohort, self.path = cohort, path
        self.members: dict[int, Slots] = {}  # what clients have after the rounds
        self.in_turns = False  # whether it was said that clients cannot be stacked
        self.told: set[int] = set()  # clients of which it was said that they were left out

    @property
    def clients(self) -> int:
        return self.setup.federation.clients

    def muster(self) -> int:
        return self.clients

    @cached_property
    def memories(self) -> Memories:
        """What clients remember from round to round; they are enrolled once they join."""
        setup = self.setup

        def enroll(client: int) -> Slots:
            labels = setup.labels(setup.federation.train[client])
            return self.method.enroll(setup.model.task, setup.fresh, labels)

        return Memories(enroll, self.clients, self.path)

    def cohort(self, server: Slots, rows: int = 0) -> int:
        """How many clients are stacked at once, where so many rows go through the whole network
        in each step: one, where a single client's step is so long that mapping gains nothing."""
        if self.asked_cohort:
            return self.asked_cohort
        return 1 if self._operations * rows > LONG else cohort_size(server, self.memories[0])

    @cached_property
    def _operations(self) -> int:
        """How many operations one row takes, forwards and backwards."""
        model = self.setup.model
        return 3 * operations(model.network, self.setup.blueprint.shape)

    def gather(self, phase: Phase, state: State, clients: Array, listener: Listener) -> Heard:
        sent = public(state.server) if phase.remembers else phase.reads(state.server)
        gone = clients[:0]
        if phase.remembers:
            rng = seeds.stream("dropout", self.seed, state.round)
            gone = clients[rng.random(len(clients)) < self.faults.dropout]
        there = clients[~np.isin(clients, gone)]
        observe = None
        if not phase.remembers and self.setup.network is not None:
            observe = self.setup.observer(self.method, state.server)
        parts: list[Part] = []
        refused: list[int] = []
        loss, done, upload = 0.0, 0, 0

        def play(cohort: Array) -> Played:
            sites = [Site(int(c), self.setup, state.round, observe) for c in cohort]
            memories = [self.memories[c] for c in cohort] if phase.remembers else [{}] * len(cohort)
            replies = phase.cohort(sites, sent, memories, _quiet)
            if phase.remembers and phase.is_move:
                replies = self._spoil(replies, sent, cohort, state.round)
            return self._judge(phase, sent, cohort, replies)

        for played in self._side_by_side(play, phase, state.server, there):
            if not phase.remembers and self.setup.network is not None:
                done += len(played.cohort)
                listener.progress(phase.name, done, len(there))
            upload = weigh(played.replies.statistics) // max(len(played.cohort), 1)
            refused += played.cohort[~played.good.numpy()].tolist()
            self._tell(played, phase, sent, state.round, listener)
            if phase.remembers:
                for client, memory, good in zip(
                    played.cohort.tolist(), played.replies.memories, played.good, strict=True
                ):
                    if good:
                        self.memories[client] = memory
            if len(played.part.weights):
                parts = self.gatherer.collect(parts, played.part, phase.is_move)
                loss += played.loss
        self._tell_order(listener)
        # What would have passed between machines.
        cost = {"sent": len(clients) * weigh(sent), "received": len(there) * upload}
        if not parts:
            return Heard(None, None, gone.tolist(), refused, cost)
        total = self.gatherer.total(sent, parts, state.round, phase.is_move, self.clients)
        return Heard(total, loss / total.weight, gone.tolist(), refused, cost)

    def _spoil(self, replies: Replies, sent: Slots, cohort: Array, round_: int) -> Replies:
        """What comes back where some clients mean harm."""

        def draw(client: int) -> torch.Generator:
            return torch.Generator().manual_seed(
                seeds.torch_seed("spoil", self.seed, round_, client)
            )

        found = spoil_uploads(self.faults, sent, replies.statistics, cohort, self.attackers, draw)
        return replace(replies, statistics=found)

    def _judge(self, phase: Phase, sent: Slots, cohort: Array, replies: Replies) -> Played:
        good = self.gatherer.valid(sent, replies.statistics, len(cohort))
        good &= replies.losses.isfinite()
        if phase.remembers:  # a personal model may break down though what is sent does not
            good &= torch.tensor([not not_finite(memory) for memory in replies.memories])
        statistics, weights = replies.statistics, replies.weights[good]
        if not good.all():
            statistics = map_slots(lambda t: t[good], statistics)
        part = self.gatherer.part(sent, statistics, weights, phase.is_move)
        loss = float((replies.losses[good].double() * weights).sum())
        return Played(cohort, replies, good, part, loss)

    def _tell(
        self, played: Played, phase: Phase, sent: Slots, round_: int, listener: Listener
    ) -> None:
        """Says who is left out and why, once for each client."""
        for place in (~played.good).nonzero().flatten().tolist():
            client, replies = int(played.cohort[place]), played.replies
            if client in self.told:
                continue
            self.told.add(client)
            upload = map_slots(lambda t, i=place: t[i], replies.statistics)
            why = self.gatherer.objection(sent, upload)
            strange = not_finite(replies.memories[place]) if phase.remembers else ""
            why = why or (f"its own {strange} is not finite" if strange else "its loss is none")
            name = client_name(self.setup.dataset, client)
            listener.say(f"{phase.name}, round {round_ + 1}: client {name} is left out: {why}")

    def _tell_order(self, listener: Listener) -> None:
        """Say once where a model's clients cannot be stacked."""
        if self.setup.network is None or self.setup.model.task not in ONE_BY_ONE or self.in_turns:
            return
        self.in_turns = True
        listener.say(
            "the model has an operation that PyTorch cannot map over stacked clients; they train "
            "one after the other, which takes longer"
        )

    def visit(
        self, phases: Sequence[Phase], server: Slots, listener: Listener
    ) -> dict[int, dict[str, Any]]:
        observe = self.setup.observer(self.method, server)
        records: dict[int, dict[str, Any]] = {client: {} for client in range(self.clients)}
        for phase in phases:
            for client, record in self._visit(phase, server, observe, listener).items():
                if record is not None:
                    records[client][phase.name] = record
        return records

    def _visit(
        self, phase: Phase, server: Slots, observe: Any, listener: Listener
    ) -> dict[int, Any]:
        sites = [Site(client, self.setup, 0, observe) for client in range(self.clients)]
        everybody = np.arange(self.clients)
        groups = self._cohorts(phase, server, everybody)
        tick = _ticking(phase, sum(phase.ticks([sites[c] for c in g]) for g in groups), listener)

        def play(group: Array) -> tuple[Array, Replies]:
            memories = [self.members.get(int(c)) or self.memories[c] for c in group]
            return group, phase.cohort([sites[c] for c in group], server, memories, tick)

        phase.prepare(sites)
        records = {}
        for group, replies in self._side_by_side(play, phase, server, everybody):
            for client, memory, record in zip(
                group.tolist(), replies.memories, replies.records, strict=True
            ):
                self.members[client] = memory
                records[client] = record
        return records

    def _cohorts(self, phase: Phase, server: Slots, clients: Array) -> list[Array]:
        if not phase.stacks or self.setup.network is None:
            return cohorts_of(clients, 1, 1)
        federation, task = self.setup.federation, self.setup.model.task
        loads = [phase.load(len(federation.train[c]), task) for c in clients]
        steps, rows = np.array(loads, np.int64).reshape(-1, 2).T
        batch = int(rows.max(initial=0))
        overhead = CALL / (self._operations * batch + LEAST)
        size, side = self.cohort(server, batch), lanes(self.setup.device)
        return cohorts_of(clients, size, side, steps, overhead)

    def _side_by_side(
        self, play: Callable[[Array], Any], phase: Phase, server: Slots, clients: Array
    ) -> Any:
        cohorts = self._cohorts(phase, server, clients)
        # What asks models for opinions shares what they said: one after the other.
        count = lanes(self.setup.device) if phase.stacks else 1
        return side_by_side(play, cohorts, count)

    @cached_property
    def _probed(self) -> Tensor:
        pooled = np.concatenate(self.setup.federation.calibration)
        rng = seeds.stream("probe", self.setup.federation.seed)
        rows = torch.from_numpy(np.sort(rng.permutation(pooled)[:PROBE]))
        return rows.to(self.setup.device)

    @torch.no_grad()
    def probe(self, server: Slots) -> float | None:
        shared = self.method.shared(server)
        if shared is None:
            return None
        logits = self.setup.model.task.logits(shared, self.setup.data.x[self._probed])
        return metrics.accuracy(logits.argmax(-1), self.setup.data.y[self._probed])

    def keep(self) -> tuple[Params, Mapping[str, str]]:
        return self.memories.save(), {}

    def restore(self, kept: Params, about: Mapping[str, str]) -> None:
        self.memories.restore(kept)

    def failure(self, rounds: int) -> Exception:
        return UserError(
            f"{rounds} round{'s' * (rounds > 1)} in a row had no valid upload: all clients "
            f"diverged or vanished; lower the learning rate, {self.method.lr:g}, or faults.dropout"
        )


def cohort_size(server: Slots, memory: Slots) -> int:
    """How many clients to stack, by the size of a client's model."""
    size = sum(t.numel() for t in (server["model"] | memory["model"]).values())
    return max(1, STACKED // max(size, 1))


def _quiet() -> None:
    """Ticks for nobody."""


def _ticking(phase: Phase, of: int, listener: Listener) -> Callable[[], None]:
    """Counts the ticks of all cohorts, though they be played side by side."""
    lock, done = threading.Lock(), 0

    def tick() -> None:
        nonlocal done
        with lock:
            done += 1
            listener.progress(phase.name, done, of)
            if done < of and listener.stopping():
                raise Stopped(f"in the stage {phase.name!r}, which begins anew")

    return tick
