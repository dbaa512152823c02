"""The models that a service answers with, by client; new ones are taken in while it runs."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.routing.bayes import RunningShare
from fedpn.serving.bundle import About, about_client, place_of, read_about
from fedpn.serving.predict import Predictor, load


class Unusable(Exception):  # noqa: N818
    """Models that cannot be opened."""


@dataclass
class Shelf:
    """A folder with models, as it was when it was opened."""

    path: Path
    about: About
    mark: tuple[int, int]  # of its manifest: when that changes, the models are new

    @classmethod
    def open(cls, path: Path) -> "Shelf":
        place = place_of(path)
        store.verify(place, ["bundle.json"])
        return cls(path, read_about(place), _mark(path))


def _mark(path: Path) -> tuple[int, int]:
    status = (place_of(path) / store.MANIFEST).stat()
    return status.st_mtime_ns, status.st_ino


@dataclass
class Answerer:
    """One client's models, those before them, and what its stream of inputs looks like."""

    predictor: Predictor
    folder: Path
    before: Predictor | None = None
    stream: RunningShare = field(default_factory=RunningShare)


class Library:
    """Opens a client's models on first use; all else about them is known from the beginning."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.trust, self.problem = trust, ""
        self.shelves = [Shelf.open(path) for path in paths]
        self.open: dict[str, Answerer] = {}
        self._lock = threading.Lock()
        names = [name for shelf in self.shelves for name in shelf.about.clients]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"client {twice[0]} is in several of these folders; serve one of them")
        for shelf in self.shelves:  # what cannot be opened is told at once, not to callers
            name = shelf.about.clients[0]
            self.open[name] = Answerer(load(shelf.path, name, trust), shelf.path)

    @property
    def clients(self) -> list[str]:
        return [name for shelf in self.shelves for name in shelf.about.clients]

    def about(self, client: str) -> About:
        """What a client's models are of; of those that answer now, though others be on disk."""
        opened = self.open.get(client)
        if opened is None:
            return about_client(self._shelf(client).about, client)
        return opened.predictor.bundle.about

    def folder(self, client: str) -> Path:
        return place_of(self._shelf(client).path)

    def _shelf(self, client: str) -> Shelf:
        for shelf in self.shelves:
            if client in shelf.about.clients:
                return shelf
        raise KeyError(client)

    def __getitem__(self, client: str) -> Answerer:
        with self._lock:
            if client not in self.open:
                shelf = self._shelf(client)
                try:
                    predictor = load(shelf.path, client, self.trust)
                except UserError:  # it names files, which are no caller's affair
                    raise Unusable(f"the models of client {client} cannot be opened") from None
                self.open[client] = Answerer(predictor, shelf.path)
            return self.open[client]

    def refresh(self) -> list[str]:
        """Takes in models that changed on disk; returns whose. What cannot be read is left."""
        changed = []
        for i, shelf in enumerate(self.shelves):
            try:
                if _mark(shelf.path) == shelf.mark:
                    continue
                fresh = Shelf.open(shelf.path)
                mine = [n for n, a in list(self.open.items()) if a.folder == shelf.path]
                loaded = {n: load(shelf.path, n, self.trust) for n in mine}
            except Exception as error:  # the watcher goes on, and so do the old models
                self.problem = f"new models could not be read: {type(error).__name__}"
                continue
            with self._lock:
                for name, predictor in loaded.items():
                    old = self.open[name]
                    self.open[name] = Answerer(predictor, shelf.path, old.predictor, old.stream)
                self.shelves[i] = fresh
            self.problem = ""
            changed += mine
        return changed

    def roll_back(self, client: str) -> bool:
        """Goes back to the models before; False where there are none."""
        with self._lock:
            old = self.open.get(client)
            if old is None or old.before is None:
                return False
            self.open[client] = Answerer(old.before, old.folder, old.predictor, old.stream)
            return True
