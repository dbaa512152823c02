"""A finished federation, opened again: its data, its models, and what they say of rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fedpn.federated.personalise import CHUNK, Embedder, Population
from fedpn.federated.rounds import Company
from fedpn.routing.thresholds import Thresholds
from torch import Tensor

from fedpn.core import store
from fedpn.core.dirichlet import Posterior
from fedpn.core.errors import UserError
from fedpn.core.settings import read_toml
from fedpn.core.trees import Params
from fedpn.runs.config import Config, resolve
from fedpn.runs.prepare import Prepared, prepare
from fedpn.serving.bundle import FILES
from fedpn_paper import grid
from fedpn_paper.cells import Cell, ensure
from fedpn_paper.figure import Result, Settings, average

QUICK: dict[str, Any] = {
    "clients": 5,
    "train": {"steps": 4},
    "method": {"adapt_epochs": 1, "adapt_steps": 40},
}
QUICK_ROUNDS = 4


class Seen(NamedTuple):
    """What one model says of some rows."""

    z: Tensor  # [n, D]
    posterior: Posterior
    logits: Tensor  # [n, K]
    belief: Tensor | None = None  # [n, K], what the global model says, where that was asked for

    @property
    def label(self) -> Tensor:
        return self.posterior.alpha.argmax(-1)


@dataclass(frozen=True)
class Opened:
    """A federation with all its models."""

    config: Config
    ready: Prepared
    people: Population
    thresholds: list[Thresholds]
    embed: Embedder

    @torch.no_grad()
    def look(self, params: Params, z: Tensor) -> Seen:
        """Asks a model for its view of embeddings."""
        model = self.ready.model
        parts = [
            (model.posterior(params, part), model.logits(params, part))
            for part in torch.split(z, CHUNK)
        ]
        posteriors, logits = zip(*parts, strict=True)
        joined = Posterior(*(torch.cat(column) for column in zip(*posteriors, strict=True)))
        return Seen(z, joined, torch.cat(logits))

    @property
    def shared(self) -> Params:
        assert self.people.shared is not None
        return self.people.shared

    def about(self) -> Result:
        """What a result says of its data."""
        dataset = self.ready.dataset
        return {
            "name": dataset.name,
            "note": dataset.note,
            "clients": self.config.clients,
            "rounds": self.config.rounds,
        }


def open_run(path: Path) -> Opened:
    """Opens a finished run of a posterior network."""
    store.verify(path, FILES)
    config = resolve([read_toml(path / "config.toml")])
    ready = prepare(config)
    shared, _ = store.read_tensors(path / "shared.safetensors")
    stacked, _ = store.read_tensors(path / "clients.safetensors")
    own = [{n: t[client] for n, t in stacked.items()} for client in range(ready.federation.clients)]
    thresholds = [Thresholds(**t) for t in store.read_json(path / "bundle.json")["thresholds"]]
    embed = Embedder(ready.model, ready.data.x, shared)
    return Opened(config, ready, Population(shared, own), thresholds, embed)


def federation(dataset: str, seed: int, out: Path, settings: Settings, company: Company) -> Opened:
    """A finished FedPN federation: taken where it is, else trained with the paper's budget.

    A quick one is small, and has a place of its own.
    """
    home, rounds = settings.home or out, settings.rounds
    cell = Cell(dataset, seed=seed, rounds=rounds)
    if settings.quick:
        home = home / "quick"
        cell = Cell(dataset, seed=seed, rounds=rounds or QUICK_ROUNDS, changes=QUICK)
    company.say(f"{dataset}: FedPN, seed {seed}")
    return open_run(ensure(cell, home, company))


def over(
    names: Sequence[str],
    out: Path,
    settings: Settings,
    company: Company,
    measure: Callable[[Opened], Result],
) -> Result:
    """What is measured of each set's federations, averaged over seeds, and what the data are."""
    there, missing = at_hand(names)
    about, sets = [], {}
    for name in there:
        measured = []
        for seed in settings.seeds:
            opened = federation(name, seed, out, settings, company)
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
