"""A client as a phase sees it, and what the clients of one process share."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.task import Data
from fedpn.core.trees import Params, Slots
from fedpn.data.batches import evened
from fedpn.data.dataset import Array, Dataset
from fedpn.data.describe import client_name
from fedpn.data.federation import Federation
from fedpn.federated.observer import ClosedForm, Embedder, Observer
from fedpn.nn.blueprint import Blueprint
from fedpn.nn.task import Model


@dataclass(frozen=True)
class Network:
    """The network that a federation has agreed on, and its first parameters."""

    blueprint: Blueprint
    model: Model
    fresh: Params


@dataclass(frozen=True, eq=False)
class Unseen:
    """Clients that never train, and are judged all the same."""

    names: tuple[str, ...]
    federation: Federation


@dataclass(frozen=True, eq=False)
class Setup:
    """The rows of the clients in this process and, once it is settled, the network."""

    dataset: Dataset
    federation: Federation
    data: Data
    network: Network | None = None
    head: ClosedForm | None = None  # where the run has one
    unseen: Unseen | None = None

    @property
    def model(self) -> Model:
        return self._settled.model

    @property
    def fresh(self) -> Params:
        return self._settled.fresh

    @property
    def blueprint(self) -> Blueprint:
        return self._settled.blueprint

    @property
    def _settled(self) -> Network:
        assert self.network is not None, "no network is settled yet"
        return self.network

    @property
    def device(self) -> torch.device:
        return self.data.x.device

    def settle(self, network: Network) -> "Setup":
        """The same rows with a network."""
        return replace(self, network=network)

    def labels(self, rows: Array) -> Tensor:
        return self.data.y[torch.from_numpy(rows).to(self.device)]

    def observer(self, method: FedAvg, server: Slots) -> Observer:
        """Asks the models of a server's state about the rows."""
        task = self.model.task
        owned = {name for name in task.encoder_names if method.owns(task, name)}
        embed = Embedder(self.model, self.data.x, server["model"], owned)
        common = method.shared(server)
        head = self.head if "head" in server else None
        return Observer(self.model, common, embed, head, server.get("head"))


@dataclass(frozen=True)
class Site:
    """One client in one phase."""

    client: int
    setup: Setup
    round: int = 0  # rounds done before this one
    observe: Observer | None = field(default=None, compare=False)  # after the rounds

    @property
    def name(self) -> str:
        return client_name(self.setup.dataset, self.client)

    @property
    def train(self) -> Array:
        return self.setup.federation.train[self.client]

    @property
    def counts(self) -> Tensor:  # [K]
        """How many training rows of each class the client has."""
        labels = self.setup.labels(self.train).cpu()
        return torch.bincount(labels, minlength=self.setup.blueprint.classes)

    def to_draw(self, balance: bool) -> Array:
        """The rows that batches are drawn from: those to train on, evened by class if asked."""
        labels = self.setup.federation.labels[self.train]
        return evened(self.train, labels) if balance else self.train

    @property
    def calibration(self) -> Array:
        return self.setup.federation.calibration[self.client]

    @property
    def observer(self) -> Observer:
        assert self.observe is not None, "models are observed after the rounds"
        return self.observe
