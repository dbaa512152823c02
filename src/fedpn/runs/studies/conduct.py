"""A sweep from its plan to its outcome: what is missing is run, what is there is kept."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import named_code, nest, read_toml, told
from fedpn.core.source import OWN
from fedpn.data.dataset import Dataset
from fedpn.runs.config import Config
from fedpn.runs.prepare import fingerprint, read
from fedpn.runs.studies.grid import Cell, Plan
from fedpn.runs.studies.outcome import Sweep
from fedpn.runs.studies.scheduler import Hear, Job, play, play_here
from fedpn.runs.studies.tuned import about_cell, fill, read_record, tree_of

PLAN, CELLS = "sweep.toml", "cells"


@dataclass(frozen=True)
class Study:
    """A sweep and its place; data that are in memory come along."""

    plan: Plan
    out: Path
    cells: tuple[Cell, ...]
    given: Dataset | None = None

    def file(self, cell: Cell) -> Path:
        """Where a cell is kept: by its settings, so that a larger sweep finds it again."""
        return self.out / CELLS / f"{cell.key}.json"

    def missing(self) -> list[Job]:
        """The cells that are not there yet."""
        return [
            Job(
                cell.name,
                partial(fill, tree_of(cell), about_cell(cell), self.file(cell), self.given),
            )
            for cell in self.cells
            if read_record(self.file(cell)) is None
        ]

    def edited(self) -> list[str]:
        """The files of the user's own of which cells that are missing are there in another
        version."""
        missing = [
            about_cell(c) for c in self.cells if read_record(self.file(c)) is None and c.code
        ]
        if not missing:
            return []
        records = filter(None, map(read_record, sorted((self.out / CELLS).glob("*.json"))))
        known = [(record, record.get("code", {})) for record in records]
        same = ("settings", "dealt", "data")
        pairs = [
            (old, cell["code"])
            for cell in missing
            for record, old in known
            if all(record.get(key) == cell[key] for key in same)
        ]
        return sorted({n for old, new in pairs for n in new if old.get(n) != new[n]})

    @property
    def stays_here(self) -> bool:
        """Whether cells need what other processes have not: data in memory, or a script's code,
        which goes by the name of a module that was made for it."""
        codes = [code for cell in self.cells for code in named_code(nest(cell.settings)).values()]
        return self.given is not None or any(code.startswith(OWN) for code in codes)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Takes the place of the sweep, new or of the same sweep with other values or seeds."""
        others = (
            [p for p in self.out.iterdir() if p.name != store.LOCK] if self.out.exists() else []
        )
        if others and not (self.out / PLAN).exists():
            raise UserError(f"--out {self.out} is not empty and holds no sweep; choose another")
        refuse_other_sweep(self.plan, self.out)
        store.make_folder(self.out / CELLS)
        with store.held(self.out):
            over = {axis.key: list(axis.values) for axis in self.plan.axes}
            tree = {"settings": self.plan.given, "over": over, "seeds": self.plan.seeds}
            store.write_toml(self.out / PLAN, tree)
            yield

    def play(self, workers: int, hear: Hear, stop: Callable[[], bool]) -> dict[str, str]:
        """Runs what is missing; returns what went wrong, by name."""
        jobs = self.missing()
        if self.stays_here:
            return play_here(jobs, hear, stop)
        threads = max((os.cpu_count() or 1) // workers, 1)
        return play(jobs, workers, hear, stop, threads)

    def outcome(self, failures: dict[str, str]) -> Sweep:
        """What is there by now."""
        records = [(cell, read_record(self.file(cell))) for cell in self.cells]
        found = [(cell, record) for cell, record in records if record is not None]
        return Sweep(self.plan, self.out, found, failures)


def begin(plan: Plan, out: Path, given: Dataset | None = None) -> Study:
    """Finds mistakes in settings, and reads the data once; nothing is written or run yet."""
    reading = {_reading(config): config for config in plan.configs()}
    found = [fingerprint(_whole(c) if given is None else given) for c in reading.values()]
    return Study(plan, out, tuple(plan.cells(",".join(found))), given)


def _reading(config: Config) -> tuple[object, ...]:
    """What decides which rows are read."""
    d = config.data
    return config.dataset, d.image_size, repr(d.wanted())


def _whole(config: Config) -> Dataset:
    return read(replace(config, data=replace(config.data, limit=0, classes=())), config.dataset)


def refuse_other_sweep(plan: Plan, out: Path) -> None:
    """A sweep may grow by values, settings and seeds, and for the rest stays what it was."""
    if not (out / PLAN).exists():
        return
    kept = read_toml(out / PLAN)
    over, old = (kept.get(name) for name in ("over", "settings"))
    if not isinstance(over, dict) or not isinstance(old, dict):
        raise UserError(f"{out / PLAN} is no plan of a sweep; choose another --out")
    swept, new = {*plan.keys, *over}, plan.given
    for key in sorted({*old, *new}):
        free = key in swept or key.startswith("engine.")
        if not free and old.get(key) != new.get(key):
            raise UserError(
                f"--out {out} has a sweep with {key}={_said(old.get(key))}, and now it is "
                f"{_said(new.get(key))}; choose another --out, or sweep over {key}"
            )


def _said(value: object) -> str:
    return "its default" if value is None else told(value)
