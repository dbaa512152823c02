"""What both sides of a comparison share: rows, first weights, batches and how they are judged."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from peers_methods import WHOLE, Deal
from torch import Tensor, nn

from fedpn.data.dataset import Array
from fedpn.federated.checkpoint import Journal
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt
from fedpn.federated.site import Setup
from fedpn.federated.training import Train
from fedpn.runs.config import Config
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import judge, play, simulate

Weights = dict[str, Tensor]


def halves(setup: Setup) -> tuple[nn.Module, nn.Module]:
    """Our network with its first weights, as others want one: a base and a head."""
    network = copy.deepcopy(setup.model.network)
    network.load_state_dict(setup.fresh, strict=False)
    return nn.Sequential(network.normalise, network.encoder), network.head


def named(base: nn.Module, head: nn.Module | None = None) -> Weights:
    """Parameters by our names, of a whole model or of a base alone."""
    found = {name.replace("1.", "encoder.", 1): p.detach() for name, p in base.named_parameters()}
    if head is not None:
        found |= {f"head.{name}": p.detach() for name, p in head.named_parameters()}
    return found


class Feed:
    """A client's loader: each pass takes its part of the batches that our plan has."""

    def __init__(self, setup: Setup, client: int, pieces: int = 1) -> None:
        self.data, self.rows, self.client = setup.data, setup.federation.train[client], client
        self.plan, self.deal, self.passed = torch.empty(0), WHOLE, 0
        self.pieces = pieces  # of each batch, where theirs takes several a step

    def begin(self, plan: Array, deal: Deal = WHOLE) -> None:
        self.plan, self.deal, self.passed = torch.from_numpy(plan), deal, 0

    def __len__(self) -> int:
        return len(self.plan) * self.pieces

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        part = self.passed % (len(self.deal) - 1)
        self.passed += 1
        first, last = (round(len(self.plan) * share) for share in self.deal[part : part + 2])
        for batch in self.plan[first:last]:
            for rows in batch.tensor_split(self.pieces):
                yield self.data.x[rows], self.data.y[rows]


@dataclass(frozen=True)
class Plans:
    """The batches that our phases draw."""

    rounds: Train
    adapt: Adapt

    def begin(self, feeds: list[Feed], number: int, deal: Deal) -> None:
        for feed in feeds:
            feed.begin(self.rounds.plan(feed.rows, feed.client, number), deal)

    def begin_adapting(self, feed: Feed) -> None:
        feed.pieces = 1
        feed.begin(self.adapt.plan(feed.rows, feed.client))


def plans_of(config: Config) -> Plans:
    phases = phases_of(config)
    return Plans(
        next(phase for phase in phases if isinstance(phase, Train)),
        next(phase for phase in phases if isinstance(phase, Adapt)),
    )


@dataclass(frozen=True)
class Side:
    """What one side came to: accuracy on own rows by model, and weights."""

    accuracy: dict[str, float]
    weights: Weights  # of the global model
    own: list[Weights] = field(default_factory=list)  # of the personal ones


def play_ours(config: Config, setup: Setup) -> Side:
    """Our algorithm, by the simulator."""
    simulator = simulate(config, setup)
    found = play(config, simulator, Journal(None), Listener())
    views = [found.records[client]["evaluate"] for client in range(simulator.clients)]
    told = judge(config, setup, views)["accuracy"]
    own = [simulator.members[client]["own"] for client in range(simulator.clients)]
    if config.headline == "global":
        del told["personal"]  # which is the global model's
        own = []
    return Side({who: row["ind"] for who, row in told.items()}, found.server["model"], own)


@torch.no_grad()
def accuracy(models: list[Any], setup: Setup) -> float:
    """The clients' mean accuracy on their own test rows."""
    shares = []
    for client, model in enumerate(models):
        rows = torch.from_numpy(setup.federation.ind(client))
        hit = model.eval()(setup.data.x[rows]).argmax(-1) == setup.data.y[rows]
        shares.append(float(hit.double().mean()))
    return sum(shares) / len(shares)


def apart(one: Side, other: Side) -> dict[str, float]:
    """The largest difference of two weights, of the global models and of the personal ones."""
    found = {"global": _apart(one.weights, other.weights)}
    if one.own and other.own:
        pairs = zip(one.own, other.own, strict=True)
        found["personal"] = max(_apart(mine, theirs) for mine, theirs in pairs)
    return found


def _apart(one: Weights, other: Weights) -> float:
    return max(float((one[n] - other[n]).abs().max()) for n in one.keys() & other.keys())
