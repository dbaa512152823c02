"""The stage after the rounds: adapt, calibrate -> each client's models and thresholds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg, batches, mapped
from fedpn.core.errors import UserError
from fedpn.core.gaussian import Gaussians, Kind, fit, sums
from fedpn.core.parallel import cohorts_of, lanes, side_by_side
from fedpn.core.task import Batch, Data, Plan, Task
from fedpn.core.trees import Params, Slots, map_slots, split, stack, unstack
from fedpn.data.batches import draw, stack_plans, steps_of
from fedpn.data.dataset import Array
from fedpn.federated.memories import Memories
from fedpn.nn.posterior import PosteriorNetwork
from fedpn.nn.task import Model
from fedpn.routing.scores import LOGIT_SCORES, Opinion, of_logits, of_posterior
from fedpn.routing.thresholds import Thresholds, calibrate

ROUTER = "router."  # names of what a router keeps beside a client's model
OWN = f"{ROUTER}own"  # which classes the client has
CHUNK = 512  # rows at once: their tensors stay in the processor's cache


@dataclass(frozen=True)
class Population:
    """Every client's model: the shared one, and what each client has of its own."""

    shared: Params | None
    own: list[Params]

    def predictor(self, client: int) -> Params:
        return (self.shared or {}) | self.own[client]


class Embedder:
    """Embeds rows of the data, once for the shared encoder, whoever asks."""

    def __init__(self, model: Model, x: Tensor, shared: Params | None) -> None:
        self.model, self.x = model, x
        self.shared = _encoder(shared or {})
        self.store = torch.empty(0)
        self.known = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def __call__(self, params: Params, rows: Array) -> Tensor:
        """Returns z of the rows, by the encoder of these parameters."""
        encoder = _encoder(params)
        if any(t is not self.shared.get(name) for name, t in encoder.items()):
            return self._embed(params, torch.from_numpy(rows).to(self.x.device))
        return self.pool(params, rows)[torch.from_numpy(rows).to(self.x.device)]

    def pool(self, params: Params, rows: Array) -> Tensor:
        """Returns the shared encoder's z for the whole dataset, filled in where rows ask."""
        wanted = torch.from_numpy(rows).to(self.x.device)
        missing = wanted[~self.known[wanted]]
        if len(missing):
            z = self._embed(params, missing)
            if not len(self.store):
                self.store = z.new_zeros(len(self.x), z.shape[1])
            self.store[missing] = z
            self.known[missing] = True
        return self.store

    @torch.no_grad()
    def _embed(self, params: Params, rows: Tensor) -> Tensor:
        encoder = _encoder(params)
        return torch.cat([self.model.embed(encoder, self.x[r]) for r in torch.split(rows, CHUNK)])


def _encoder(params: Params) -> Params:
    return {name: t for name, t in params.items() if name.startswith("encoder.")}


@dataclass(frozen=True)
class Observer:
    """Asks models for their opinion of rows."""

    model: Model
    embed: Embedder
    score: str
    router: str = ""

    @torch.no_grad()
    def __call__(self, params: Params, rows: Array) -> Opinion:
        z = self.embed(params, rows)
        parts = [self.view(params, part) for part in torch.split(z, CHUNK)]
        return Opinion(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))

    def view(self, params: Params, z: Tensor) -> Opinion:
        """The opinion of embeddings, by what the network can tell; a router scores in its stead."""
        gaussians, params = split(params, lambda n: n.startswith(ROUTER))
        posterior = isinstance(self.model.network, PosteriorNetwork)
        if posterior and not self.router:
            return of_posterior(self.model.posterior(params, z), self.score)
        logits = self.model.logits(params, z)
        if gaussians and self.router == "gaussian":
            epistemic = -Gaussians(**_bare(gaussians)).log_density(z)
        else:
            epistemic = LOGIT_SCORES.get(self.router, LOGIT_SCORES["msp"])(logits)
        if not posterior:
            return of_logits(logits, epistemic)
        opinion = of_posterior(self.model.posterior(params, z), self.score)
        return opinion._replace(epistemic=epistemic)


def fit_routers(
    people: Population,
    embed: Embedder,
    y: Tensor,
    rows: tuple[Array, ...],
    classes: int,
    covariance: Kind,
    shrinkage: float,
) -> Population:
    """Fits Gaussians to the embeddings of each client's own training rows."""
    own = []
    for client, mine in enumerate(rows):
        params = people.predictor(client)
        labels = y[torch.from_numpy(mine).to(y.device)]
        found = fit(sums(embed(params, mine), labels, classes), covariance, shrinkage)
        named = {f"{ROUTER}{name}": t for name, t in found._asdict().items()}
        own.append(people.own[client] | named)
    return Population(people.shared, own)


def know_classes(
    people: Population, y: Tensor, rows: tuple[Array, ...], classes: int
) -> Population:
    """Notes which classes each client has training rows of."""
    own = []
    for client, mine in enumerate(rows):
        labels = y[torch.from_numpy(mine).to(y.device)]
        own.append(people.own[client] | {OWN: torch.bincount(labels, minlength=classes) > 0})
    return Population(people.shared, own)


def meet(local: Opinion, shared: Opinion, params: Params) -> Opinion:
    """A client's opinion beside the global one.

    Where the client's router has noted its classes, its score is how much the global model believes
    in all others: own rows that are odd to the client alone then stay at home.
    """
    if OWN not in params:
        return local
    foreign = (~params[OWN]).to(shared.probs)
    return local._replace(epistemic=(shared.probs * foreign).sum(-1))


def _bare(gaussians: Params) -> Params:
    return {name.removeprefix(ROUTER): t for name, t in gaussians.items()}


def adapt(
    algorithm: FedAvg,
    model: Model,
    data: Data,
    rows: tuple[Array, ...],
    server: Slots,
    memories: Sequence[Slots] | Memories,
    fresh: Params,
    embed: Embedder,
    batch: int,
    seed: int,
    cohort: int,
    tick: Callable[[int, int], None] = lambda done, of: None,
    numbers: Sequence[int] | None = None,
) -> list[Slots]:
    """Lets each client fit its own model to its own training rows, as its algorithm says.

    What is drawn depends on the clients' numbers, whoever of them is at hand.

    Where the encoder is shared and stays as it is, rows are embedded once and steps are cheap.
    """
    plans = _plans(algorithm, rows, batch, seed, numbers)
    if not max(map(len, plans)):
        return [memories[client] for client in range(len(rows))]
    task = model.task
    if _leaves_encoder(algorithm, task, fresh):
        z = embed.pool(server["model"], np.concatenate(rows))
        task, data = model.top, Data(z, data.y)
    beside = lanes(data.x.device)
    groups = cohorts_of(np.arange(len(rows)), cohort, beside)
    steps = sum(max(len(plans[c]) for c in group) for group in groups)
    done = iter(range(1, steps + 1))

    def client(memory: Slots, plan: Plan) -> Slots:
        mine = _ticking(batches(data, plan), lambda: tick(next(done), steps))
        return algorithm.adapt(task, server, memory, fresh, mine)

    def together(group: Array) -> list[Slots]:
        plan = Plan(*(t.to(data.x.device) for t in stack_plans([plans[c] for c in group])))
        mine = map_slots(lambda t: t.to(data.x.device), stack([memories[c] for c in group]))
        return unstack(mapped(client, mine, plan), len(group))

    return [memory for group in side_by_side(together, groups, beside) for memory in group]


def _plans(
    algorithm: FedAvg,
    rows: tuple[Array, ...],
    batch: int,
    seed: int,
    numbers: Sequence[int] | None = None,
) -> list[Array]:
    epochs, least = algorithm.adapt_epochs, algorithm.adapt_steps
    return [
        draw(mine, steps_of(len(mine), batch, epochs, least), batch, (seed, 6, client))
        for client, mine in zip(numbers or range(len(rows)), rows, strict=True)
    ]


def _leaves_encoder(algorithm: FedAvg, task: Task, params: Params) -> bool:
    return not any(
        algorithm.adapts(task, name) or algorithm.personal(task, name) for name in _encoder(params)
    )


def _ticking(steps: Iterable[Batch], tick: Callable[[], None]) -> Iterator[Batch]:
    for step in steps:
        yield step
        tick()


def population(algorithm: FedAvg, server: Slots, memories: list[Slots]) -> Population:
    """Separates what each client has of its own from what all share."""
    shared = algorithm.shared(server)
    common = shared or {}
    own = [
        {n: t for n, t in algorithm.predictor(server, memory).items() if t is not common.get(n)}
        for memory in memories
    ]
    for client, params in enumerate(own):
        if not all(t.isfinite().all() for t in params.values()):
            raise UserError(f"the model of client {client} diverged: lower its learning rates")
    return Population(shared, own)


def calibrate_all(
    people: Population,
    observe: Observer,
    rows: tuple[Array, ...],
    outliers: float,
    abstain: float,
) -> list[Thresholds]:
    """Takes every client's thresholds from its own calibration rows."""
    if people.shared is None:
        raise UserError("thresholds need a global model to delegate to, and there is none")
    thresholds = []
    for client, mine in enumerate(rows):
        try:
            shared = observe(people.shared, mine)
            local = meet(observe(people.predictor(client), mine), shared, people.own[client])
            thresholds.append(calibrate(local, shared, outliers, abstain))
        except UserError as error:
            raise UserError(f"client {client} has {error}") from None
    return thresholds
