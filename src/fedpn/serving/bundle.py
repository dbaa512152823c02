"""What answering needs, on disk: models, thresholds, normalisation, provenance.

A run directory holds it for all clients, an exported folder for one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fedpn
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Params
from fedpn.data.dataset import Dataset
from fedpn.federated.personalise import Population
from fedpn.nn.blueprint import Blueprint
from fedpn.routing.thresholds import Thresholds
from fedpn.runs.config import Config

FILES = ["bundle.json", "shared.safetensors", "clients.safetensors"]


@dataclass(frozen=True)
class Bundle:
    """One client's means of answering."""

    client: str
    blueprint: Blueprint
    classes: tuple[str, ...]
    features: tuple[str, ...]  # of a table, the columns; none where they have no names
    score: str
    router: str
    shared: Params | None
    own: Params
    thresholds: Thresholds | None
    provenance: dict[str, Any]

    @property
    def predictor(self) -> Params:
        return (self.shared or {}) | self.own


def write_models(
    out: Path,
    blueprint: Blueprint,
    dataset: Dataset,
    config: Config,
    people: Population,
    thresholds: list[Thresholds] | None,
) -> None:
    """Writes all clients' models and what goes with them."""
    names = dataset.clients or tuple(map(str, range(len(people.own))))
    note = " ".join(filter(None, (dataset.note, *dataset.remarks)))
    about = _about(blueprint, dataset.classes, names, dataset.name, note, config) | {
        "features": list(dataset.features),
        "thresholds": None if thresholds is None else [t._asdict() for t in thresholds],
    }
    own = {name: torch.stack([p[name] for p in people.own]) for name in people.own[0]}
    store.write_tensors(out / "shared.safetensors", people.shared or {})
    store.write_tensors(out / "clients.safetensors", own)
    store.write_json(out / "bundle.json", about)


def write_shared(
    out: Path,
    blueprint: Blueprint,
    classes: Sequence[str],
    note: str,
    config: Config,
    shared: Params | None,
    names: Sequence[str],
) -> None:
    """Writes what a server has: the global model; the personal ones stay with their nodes."""
    about = _about(blueprint, classes, names, config.dataset, note, config)
    store.write_tensors(out / "shared.safetensors", shared or {})
    store.write_tensors(out / "clients.safetensors", {})
    store.write_json(out / "bundle.json", about | {"thresholds": None, "elsewhere": True})


def _about(
    blueprint: Blueprint,
    classes: Sequence[str],
    names: Sequence[str],
    dataset: str,
    note: str,
    config: Config,
) -> dict[str, Any]:
    return {
        "format": 1,
        "model": blueprint._asdict(),
        "classes": list(classes),
        "score": config.routing.score,
        "router": config.routing.router,
        "clients": list(names),
        "provenance": {
            "fedpn": fedpn.__version__,
            "torch": str(torch.__version__),
            "dataset": dataset,
            "note": note,
            "algorithm": config.algorithm,
            "rounds": config.rounds,
            "seed": config.seed,
        },
    }


def open_bundle(path: Path, client: int | str | None = None) -> Bundle:
    """Reads one client's part of a run or of an exported folder."""
    path = _place(path)
    store.verify(path, FILES)
    about = store.read_json(path / "bundle.json")
    if about.get("elsewhere"):
        raise UserError(
            f"{path} is a server's: each node has its own model, below its state directory as "
            "`bundle`; ask there"
        )
    shared, _ = store.read_tensors(path / "shared.safetensors")
    own, _ = store.read_tensors(path / "clients.safetensors")
    alike = not own and about["thresholds"] is None  # one model for all clients
    index = 0 if alike and client is None else _find(about["clients"], client, path)
    thresholds = about["thresholds"]
    return Bundle(
        client=about["clients"][index],
        blueprint=Blueprint(**about["model"]),
        classes=tuple(about["classes"]),
        features=tuple(about.get("features", ())),
        score=about["score"],
        router=about["router"],
        shared=shared or None,
        own={name: t[index] for name, t in own.items()},
        thresholds=None if thresholds is None else Thresholds(**thresholds[index]),
        provenance=about["provenance"],
    )


def export(path: Path, client: int | str | None, out: Path) -> Bundle:
    """Writes one client's part alone into a new folder, which `open_bundle` takes as well."""
    path = _place(path)
    bundle = open_bundle(path, client)
    store.claim(out, hint="")
    about = store.read_json(path / "bundle.json")
    index = about["clients"].index(bundle.client)
    if about["thresholds"] is not None:
        about["thresholds"] = [about["thresholds"][index]]
    store.write_tensors(out / "shared.safetensors", bundle.shared or {})
    store.write_tensors(
        out / "clients.safetensors", {name: t[None] for name, t in bundle.own.items()}
    )
    store.write_json(out / "bundle.json", about | {"clients": [bundle.client]})
    store.seal(out)
    return bundle


def _place(path: Path) -> Path:
    """Where the files are: in the directory itself, or below a node's state directory."""
    if not path.is_dir():
        raise UserError(f"{path} is not a directory: give a run or an exported folder")
    within = path / "bundle"
    return within if (within / "bundle.json").exists() else path


def _find(names: list[str], client: int | str | None, path: Path) -> int:
    if client is None:
        if len(names) == 1:
            return 0
        raise UserError(f"{path} holds {len(names)} clients: say which with --client")
    if str(client) in names:
        return names.index(str(client))
    raise UserError(
        f"{path} has no client {client}; it has {', '.join(names[:12])}{' …' * (len(names) > 12)}"
    )
