"""What is kept of a finished cell: its figures and how they came about, a few kilobytes."""

from pathlib import Path
from typing import Any

from fedpn import store
from fedpn.experiments.cells import Cell, ensure
from fedpn.rounds import Company

Tree = dict[str, Any]
FOLDER = "cells"
LEFT_OUT = ("per_client", "format", "dataset", "algorithm", "seed")


def settle(cell: Cell, out: Path, company: Company | None = None) -> Tree:
    """Returns the cell's record, running what is missing of the cell.

    A record with the same settings counts as done, whether its run directory is there or not.
    """
    kept = recorded(cell, out)
    return write_record(cell, ensure(cell, out, company), out) if kept is None else kept


def recorded(cell: Cell, out: Path) -> Tree | None:
    """The cell's record, where there is one with the same settings."""
    path = out / FOLDER / f"{cell.name}.json"
    kept: Tree | None = store.read_json(path) if path.exists() else None
    return kept if kept is not None and kept["settings"] == cell.settings() else None


def write_record(cell: Cell, run: Path, out: Path) -> Tree:
    """Writes the record of a finished run."""
    metrics = store.read_json(run / "metrics.json")
    provenance = store.read_json(run / "bundle.json")["provenance"]
    record = {
        "format": 1,
        "dataset": cell.set_name,
        "algorithm": cell.algorithm,
        "variant": cell.variant,
        "seed": cell.seed,
        "settings": cell.settings(),
        **{key: value for key, value in metrics.items() if key not in LEFT_OUT},
        "timings": {k: round(v, 1) for k, v in store.read_json(run / "timings.json").items()},
        "engine": store.read_json(run / "engine.json"),
        "note": provenance["note"],
        "versions": {key: provenance[key] for key in ("fedpn", "torch")},
    }
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    store.write_json(out / FOLDER / f"{cell.name}.json", record)
    return record


def read_records(out: Path) -> list[Tree]:
    """All records below a place."""
    return [store.read_json(path) for path in sorted((out / FOLDER).glob("*.json"))]
