"""One cell of a sweep: a run that is judged on tuning rows, a fifth of the training rows.

All cells have their rows dealt by one seed, and only what comes after dealing (which training rows
are held out, first parameters, batches) is drawn by a cell's own: so the test rows of that seed are
test rows in every cell, and none ever looks at them.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import Tree
from fedpn.core.summary import SETS
from fedpn.data.dataset import Dataset
from fedpn.data.describe import client_name
from fedpn.data.federation import tuning
from fedpn.federated.checkpoint import Journal
from fedpn.federated.listener import Listener
from fedpn.federated.site import Setup
from fedpn.runs.code import versions
from fedpn.runs.config import Config, resolve, to_tree
from fedpn.runs.identity import identity_of
from fedpn.runs.pipeline import judge, play, simulate
from fedpn.runs.prepare import assemble, deal, fingerprint, who_trains
from fedpn.runs.studies.alone import alone
from fedpn.runs.studies.grid import Cell

FORMAT = 1
LEFT_OUT = ("format", "per_client", "by_class")  # of metrics: what takes room


def prepare_tuning(config: Config, dealt: int, given: Dataset | None = None) -> Setup:
    """Data and network for a run that is judged on tuning rows; unseen clients stay unseen."""
    dealing = replace(config, seed=dealt)
    dataset, federation = deal(dealing, given)
    seen, unseen = who_trains(dealing, federation.clients)
    if unseen:
        names = tuple(client_name(dataset, client) for client in seen)
        dataset, federation = replace(dataset, clients=names), federation.only(seen)
    return assemble(config, dataset, tuning(federation, config.seed))


def judge_on_tuning_rows(
    config: Config, dealt: int, place: Path, listener: Listener, given: Dataset | None = None
) -> dict[str, Any]:
    """The metrics of a run on tuning rows; goes on where `place` has a checkpoint of it."""
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    setup = prepare_tuning(config, dealt, given)
    store.make_folder(place)
    simulator = simulate(config, setup, place)
    identity = identity_of(config, fingerprint(setup.dataset), f"a sweep dealt by seed {dealt}")
    journal = Journal(place, identity.facts, say=listener.say)
    journal.check()
    found = play(config, simulator, journal, listener)
    return judge(config, setup, [found.records[c]["evaluate"] for c in range(simulator.clients)])


def fill(
    settings: Tree, about: Mapping[str, Any], file: Path, given: Dataset | None, listener: Listener
) -> None:
    """Plays a cell, unless it is there by now, and writes what is kept of it."""
    place = file.with_suffix("")
    with alone(place):
        if read_record(file) is not None:
            return
        config = resolve([settings])
        if versions(settings) != about["code"]:
            names = ", ".join(about["code"])
            raise UserError(f"{names}: edited while the sweep was at work; sweep again")
        metrics = judge_on_tuning_rows(config, about["dealt"], place, listener, given)
        figures = {key: value for key, value in metrics.items() if key not in LEFT_OUT}
        store.write_json(file, {"format": FORMAT, **about, "figures": figures})
        shutil.rmtree(place)


def about_cell(cell: Cell) -> dict[str, Any]:
    """What a cell's record says of the cell."""
    return {
        "key": cell.key,
        "dealt": cell.dealt,
        "data": cell.data,
        "code": cell.code,
        "seed": cell.config.seed,
        "settings": cell.settings,
    }


def read_record(file: Path) -> dict[str, Any] | None:
    """What is kept of a cell; None where it is not there, or not whole, and must be run."""
    if not file.exists():
        return None
    try:
        kept = store.read_json(file)
    except store.Damaged:
        return None
    return kept if _is_whole(kept, file.stem) else None


def _is_whole(kept: Any, key: str) -> bool:
    """Whether a record is of the cell that its file is called after, and has its figures."""
    try:
        figures = kept["figures"]
        row = figures["accuracy"][figures["headline"]]
        known = all(row[name] is None or 0 <= row[name] <= 1 for name in SETS)
        return bool(known and kept["key"] == key and kept["format"] == FORMAT)
    except (KeyError, TypeError):
        return False


def tree_of(cell: Cell) -> Tree:
    """The settings of a cell as another process can have them."""
    return to_tree(cell.config)
