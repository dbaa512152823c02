"""What a node keeps on disk: its memory by round, and in the end the bundle that answers.

A node trains on from the memory of its last round that counted with the server, so the last two
are kept: the one that counted and the one that may. Files are replaced whole or not at all.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, unflatten
from fedpn.flower.app import models

RUNS, DRAFT = "runs", "draft"
KEPT = 100  # runs whose models a node remembers, of which all but a few have ended
_NAME = re.compile(r"memory-(\d{8})\.safetensors")


def check_name(run: str) -> None:
    """A run's name comes from outside, and becomes that of a directory."""
    if not re.fullmatch(r"[\w.-]{1,64}", run) or run.startswith("."):
        raise UserError(f"the run's name {run[:80]!r} cannot be that of a directory")


def forget_old_models(place: Path) -> None:
    """Models of runs of long ago are taken away, so that no server fills a node's disk.

    What was asked in a run stays: it must not be asked anew.
    """
    models = [*place.glob("*/memory-*"), *place.glob(f"*/{DRAFT}")]
    models.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    kept = list(dict.fromkeys(path.parent for path in models))[:KEPT]
    for path in models:
        if path.parent not in kept and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.parent not in kept:
            path.unlink(missing_ok=True)


class NodeState:
    """A node's files of one run."""

    def __init__(self, home: Path, run: str, data: str) -> None:
        check_name(run)
        self.home, self.place, self.data = home, home / RUNS / run, data
        if not self.place.is_dir():
            self.place.mkdir(parents=True, mode=0o700)
            forget_old_models(self.place.parent)

    def load(self, round_: int, roles: Sequence[str]) -> Slots:
        """Reads the memory of a round."""
        path = self._path(round_)
        if not path.exists():
            raise UserError(f"the memory of round {round_} is lost: {path} is missing")
        tensors, about = store.read_tensors(path)
        if about["data"] != self.data:
            raise UserError("the data are not those with which this node began the run")
        return unflatten(tensors, roles)

    def save(self, round_: int, memory: Slots, base: int) -> None:
        """Writes the memory of a round; of the others only that of `base` is kept."""
        store.write_tensors(self._path(round_), flatten(memory), data=self.data)
        for path in self.place.iterdir():
            found = _NAME.fullmatch(path.name)
            if found and int(found[1]) not in (round_, base):
                path.unlink()

    @property
    def draft(self) -> Path:
        """An empty directory for a bundle to be."""
        place = self.place / DRAFT
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        return place

    def publish(self) -> Path:
        """Lets the drafted bundle answer; the ones before stay, to go back to."""
        models.publish(self.home, self.place / DRAFT)
        return self.home / models.BUNDLE

    def _path(self, round_: int) -> Path:
        return self.place / f"memory-{round_:08}.safetensors"
