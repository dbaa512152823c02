"""The phases after the rounds, each client on its own: adapt, fit a router, calibrate a rule."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg, batches, mapped
from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.core.task import Batch, Data, Plan, Task
from fedpn.core.trees import Params, Slots, split, stack, unstack
from fedpn.data.batches import draw, stack_plans, steps_of
from fedpn.data.dataset import Array
from fedpn.federated.copies import share_elsewhere
from fedpn.federated.gate import SLOT as GATE
from fedpn.federated.gate import strangers
from fedpn.federated.phase import Phase, Replies, Reply, Tick, on_device
from fedpn.federated.site import Site
from fedpn.routing.routers import Router
from fedpn.routing.rule import EVEN, Lesson, Rule, Views
from fedpn.routing.rules import find_rule, to_state
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import count_outcomes, teach


@dataclass(frozen=True)
class Adapt(Phase):
    """Lets each client fit its own model to its own training rows, as its algorithm says.

    It leaves a memory of one slot, `own`: what the client predicts with beside the shared model.
    Where the encoder is shared and stays as it is, rows are embedded once and steps are cheap.
    """

    method: FedAvg
    batch: int
    seed: int
    balance: bool = False  # whether batches have a client's classes evenly
    least: int = 0  # training rows; with fewer a client keeps what the rounds gave it

    name: ClassVar[str] = "personalise"
    stacks: ClassVar[bool] = True
    sums: ClassVar[bool] = False

    def cohort(
        self, sites: Sequence[Site], sent: Slots, memories: Sequence[Slots], tick: Tick
    ) -> Replies:
        setup, method = sites[0].setup, self.method
        plans = [self.plan(site.to_draw(self.balance), site.client) for site in sites]
        if max(map(len, plans)):
            fitted = self._fit(sites, sent, memories, plans, tick)
            few = [len(site.train) < self.least for site in sites]
            memories = [(new, old)[f] for new, old, f in zip(fitted, memories, few, strict=True)]
        owned = [
            own_part(method, setup.model.task, sent, memory, site.name)
            for site, memory in zip(sites, memories, strict=True)
        ]
        none = torch.ones(len(sites))
        return Replies([{"own": own} for own in owned], {}, none, 0 * none, [None] * len(sites))

    def _fit(
        self,
        sites: Sequence[Site],
        sent: Slots,
        memories: Sequence[Slots],
        plans: list[Array],
        tick: Tick,
    ) -> list[Slots]:
        setup, method = sites[0].setup, self.method
        task, data = setup.model.task, setup.data
        if self._leaves_encoder(task):
            task, data = setup.model.top, Data(_embedded(sites), data.y)
        plan = Plan(*(t.to(setup.device) for t in stack_plans(plans)))

        def client(memory: Slots, plan: Plan) -> Slots:
            steps = _ticking(batches(data, plan), tick)
            return method.adapt(task, sent, memory, setup.fresh, steps)

        stacked = on_device(stack(memories), setup.device)
        return unstack(mapped(task, client, stacked, plan), len(sites))

    def load(self, rows: int, task: Task) -> tuple[int, int]:
        return self._steps(rows), 0 if self._leaves_encoder(task) else self.batch

    def prepare(self, sites: Sequence[Site]) -> None:
        if self._leaves_encoder(sites[0].setup.model.task) and self.ticks(sites):
            _embedded(sites)

    def _leaves_encoder(self, task: Task) -> bool:
        return not any(self.method.owns(task, name) for name in task.encoder_names)

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        return Reply(self.cohort([site], sent, [memory], lambda: None).memories[0])

    def plan(self, rows: Array, client: int) -> Array:
        """Draws a client's batches."""
        return draw(
            rows, self._steps(len(rows)), self.batch, seeds.stream("adapt", self.seed, client)
        )

    def _steps(self, rows: int) -> int:
        method = self.method
        return steps_of(rows, self.batch, method.adapt_epochs, method.adapt_steps)

    def ticks(self, sites: Sequence[Site]) -> int:
        return max(self._steps(len(site.to_draw(self.balance))) for site in sites)


def _embedded(sites: Sequence[Site]) -> Tensor:
    """Embeddings of the whole dataset, filled in for the sites' training rows."""
    return sites[0].observer.embed.pool(np.concatenate([site.train for site in sites]))


def own_part(method: FedAvg, task: Task, server: Slots, memory: Slots, client: str) -> Params:
    """What a client predicts with beside the shared model; told by names."""
    whole = method.predictor(server, memory)
    alone = method.shared(server) is None
    own = split(whole, lambda name: alone or method.owns(task, name))[0]
    for name, tensor in own.items():
        if not tensor.isfinite().all():
            raise UserError(
                f"the model of client {client} diverged in its personal stage ({name} is not "
                "finite): lower its learning rates"
            )
    return own


def _ticking(steps: Iterable[Batch], tick: Callable[[], None]) -> Iterator[Batch]:
    for step in steps:
        yield step
        tick()


@dataclass(frozen=True)
class FitRouter(Phase):
    """Learns each client's router from its training rows, into the slot `router`."""

    router: Router

    name: ClassVar[str] = "route"
    sums: ClassVar[bool] = False

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        observe, rows = site.observer, site.train
        local, shared = observe.local(memory["own"], rows), observe.shared(rows)
        labels = site.setup.labels(rows).cpu()
        return Reply(memory | {"router": self.router.fit(local, shared, labels)})


@dataclass(frozen=True)
class Calibrate(Phase):
    """Learns each client's rules and standards from its calibration rows, into slots of that name.

    The standards are those of the rule that counts; the others are there to be compared.
    """

    router: Router | None
    rules: tuple[str, ...]  # their kinds
    rule: str  # the kind that counts; "" where a single model always answers
    settings: RoutingSettings

    name: ClassVar[str] = "calibrate"
    sums: ClassVar[bool] = False

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        lesson = self.lesson(site, sent, memory)
        plain = replace(self.settings, risk=0.0, sets=0.0)
        rules: dict[str, Rule] = {}
        try:
            own, held = teach(find_rule(self.rule) if self.rule else None, lesson, self.settings)
            for kind in self.rules:
                rule = own if kind == self.rule else teach(find_rule(kind), lesson, plain)[0]
                assert rule is not None
                rules[kind] = rule
        except UserError as error:
            raise UserError(f"client {site.name} has {error}") from None
        x = site.setup.data.x[torch.from_numpy(site.calibration).to(site.setup.device)].cpu()
        strange = strangers(x, sent.get(GATE, {}), own=lesson.labels)
        held = held._replace(seen=count_outcomes(own, lesson.views, held, strange))
        return Reply(memory | {"rule": to_state(rules), "standards": held._asdict()})

    def lesson(self, site: Site, sent: Slots, memory: Slots) -> Lesson:
        """What the client's held-out rows, and all clients' together, have to teach."""
        setup, rows = site.setup, site.calibration
        counts = site.counts
        if self.rule:
            views = views_of(site, self.router, memory, rows)
        else:
            own = site.observer.local(memory["own"], rows)
            views = Views(own, own, own.total)
        pooled = sent.get("pool")
        if pooled is not None:
            pooled = {name: t.cpu() for name, t in pooled.items()}
        promises = self.settings.risk or self.settings.sets
        elsewhere = share_elsewhere(site, sent) if promises else 0.0
        return Lesson(views, setup.labels(rows).cpu(), counts, pooled, elsewhere)


def views_of(site: Site, router: Router | None, memory: Slots, rows: Array) -> Views:
    """All that is known of rows: opinions, the router's score, what the client's own head says."""
    sight = site.observer.own_sight(memory.get("head", {}), rows)
    local, shared = site.observer.local(memory["own"], rows), site.observer.shared(rows)
    score = local.total
    if router is not None:
        score = router.score(local, shared, memory.get("router", {}))
    return Views(local, shared, score, EVEN, *sight)
