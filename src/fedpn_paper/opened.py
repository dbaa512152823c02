"""A finished federation, opened again: its data, its models, and what they say of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.core.settings import need_trust
from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn.federated.listener import Listener
from fedpn.federated.observer import Embedder, Observer, view
from fedpn.federated.site import Setup
from fedpn.routing.opinion import Opinion
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.routers import Router
from fedpn.runs.config import Config, resolve
from fedpn.runs.directory import stored
from fedpn.runs.phases import router_of
from fedpn.runs.prepare import prepare
from fedpn.serving.bundle import Bundle, open_bundle, read_about
from fedpn_paper import grid
from fedpn_paper.cells import Cell, ensure
from fedpn_paper.figure import Result, Settings, average

QUICK: dict[str, Any] = {
    "clients": 5,
    "train": {"steps": 4},
    "method": {"adapt_epochs": 1, "adapt_steps": 40},
}
QUICK_ROUNDS = 4


@dataclass(frozen=True)
class Opened:
    """A federation with a switch, and all its models."""

    config: Config
    setup: Setup
    observe: Observer
    router: Router
    bundles: list[Bundle]  # a client each

    @property
    def shared(self) -> Params:
        assert self.observe.common is not None
        return self.observe.common

    def local(self, client: int, rows: Array) -> Opinion:
        """What a client's model says of rows."""
        return self.observe.local(self.bundles[client].own, rows)

    def embed(self, images: Array) -> Tensor:
        """Embeddings of inputs that are not among the rows."""
        x = torch.from_numpy(images).to(self.setup.device)
        rows = torch.arange(len(x)).numpy()
        return Embedder(self.setup.model, x, self.shared)(rows)

    def local_view(self, client: int, z: Tensor) -> Opinion:
        """What a client's model says of embeddings."""
        return view(self.setup.model, self.bundles[client].predictor, z)

    def shared_view(self, z: Tensor) -> Opinion:
        """What the global model says of embeddings."""
        return view(self.setup.model, self.shared, z)

    def rule(self, client: int) -> Quantiles:
        """The client's thresholds, by the paper's rule."""
        rule = self.bundles[client].rule
        assert isinstance(rule, Quantiles), "the federation does not decide by the paper's rule"
        return rule

    def about(self) -> Result:
        """What a result says of its data."""
        dataset = self.setup.dataset
        return {
            "name": dataset.name,
            "note": dataset.note,
            "clients": self.config.clients,
            "rounds": self.config.rounds,
        }


def open_run(path: Path) -> Opened:
    """Opens a finished run with a switch."""
    kept = stored(path)
    need_trust(kept, path, False)  # no cell of the paper names code
    config = resolve([kept])
    bundles = [open_bundle(path, name) for name in read_about(path).clients]
    router, shared = router_of(config), bundles[0].shared
    if router is None or shared is None:
        raise UserError(f"{path} is a run without a switch")
    setup = prepare(config)
    embed = Embedder(setup.model, setup.data.x, shared)
    return Opened(config, setup, Observer(setup.model, shared, embed), router, bundles)


def federation(
    dataset: str, seed: int, out: Path, settings: Settings, listener: Listener
) -> Opened:
    """A finished FedPN federation: taken where it is, else trained with the paper's budget.

    A quick one is small, and has a place of its own.
    """
    home, rounds = settings.home or out, settings.rounds
    cell = Cell(dataset, seed=seed, rounds=rounds)
    if settings.quick:
        home = home / "quick"
        cell = Cell(dataset, seed=seed, rounds=rounds or QUICK_ROUNDS, changes=QUICK)
    listener.say(f"{dataset}: FedPN, seed {seed}")
    return open_run(ensure(cell, home, listener))


def over(
    names: Sequence[str],
    out: Path,
    settings: Settings,
    listener: Listener,
    measure: Callable[[Opened], Result],
) -> Result:
    """What is measured of each set's federations, averaged over seeds, and what the data are."""
    there, missing = at_hand(names)
    about, sets = [], {}
    for name in there:
        measured = []
        for seed in settings.seeds:
            opened = federation(name, seed, out, settings, listener)
            measured.append(measure(opened))
        about.append(opened.about())
        sets[name] = average(measured)
    return {"data": about, "missing": missing, "seeds": len(settings.seeds), "sets": sets}


def at_hand(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts names of sets that are at hand from those that are missing.

    >>> at_hand(["digits", "nothing-of-the-kind"])
    (['digits'], ['nothing-of-the-kind'])
    """
    there = [name for name in names if grid.at_hand(name)]
    missing = [n for n in names if n not in there]
    if not there:
        raise UserError(
            f"none of {', '.join(missing)} is at hand; fetch one with `fedpn data get {missing[0]}`"
        )
    return there, missing
