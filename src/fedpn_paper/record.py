"""What is kept of a finished cell: its figures and how they came about, a few kilobytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.federated.listener import Listener
from fedpn_paper.cells import Cell, ensure

Tree = dict[str, Any]
FOLDER = "cells"
ELSEWHERE = "choose another --out, or remove it"
LEFT_OUT = ("per_client", "format", "dataset", "algorithm", "seed")


def settle(cell: Cell, out: Path, listener: Listener | None = None) -> Tree:
    """Returns the cell's record, running what is missing of the cell.

    A record with the same settings counts as done, whether its run directory is there or not;
    one that was cut short is run again.
    """
    kept = recorded(cell, out)
    return write_record(cell, ensure(cell, out, listener), out) if kept is None else kept


def recorded(cell: Cell, out: Path) -> Tree | None:
    """The cell's record, where it is there and whole; one with other settings is refused."""
    path = out / FOLDER / f"{cell.name}.json"
    if not path.exists():
        return None
    kept: Tree = store.read_json(path)
    refuse_others(path, kept["settings"], cell.settings(), grows=("rounds",))
    wanted = cell.config().rounds
    if kept["rounds"] > wanted:
        raise UserError(f"{path} has {kept['rounds']} rounds, not {wanted}; {ELSEWHERE}")
    return kept if kept["rounds"] == wanted else None


def refuse_others(path: Path, old: Tree, new: Tree, grows: Sequence[str]) -> None:
    """What is kept is not overwritten by something else."""
    for key in old | new:
        if key not in grows and old.get(key) != new.get(key):
            raise UserError(
                f"{path} was made with other settings: {key} was {old.get(key)!r} and is now "
                f"{new.get(key)!r}; {ELSEWHERE}"
            )


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
