"""The models that a service answers with, by client; new ones are taken in while it runs."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.routing.bayes import RunningShare
from fedpn.serving.bundle import About, about_client, place_of, read_about, version_of
from fedpn.serving.predict import Predictor, load

T = TypeVar("T")


class Unusable(Exception):  # noqa: N818
    """Models that cannot be opened."""


@dataclass(frozen=True)
class Shelf:
    """A folder with models, as it was when it was read."""

    path: Path
    about: About
    version: str

    @classmethod
    def open(cls, path: Path) -> "Shelf":
        version = version_of(path)
        store.verify(place_of(path), ["bundle.json"])
        about = read_about(place_of(path))
        if version_of(path) != version:
            raise store.Damaged(f"{path} was replaced while it was read: open it again")
        return cls(path, about, version)


@dataclass(frozen=True)
class Answerer:
    """One version of a client's models: a request takes it when it arrives and keeps it.

    What the client's stream of inputs looks like goes on from version to version.
    """

    predictor: Predictor
    folder: Path
    before: Predictor | None = None
    stream: RunningShare = field(default_factory=RunningShare)
    newest: str = ""  # the version last taken from the folder; after a rollback, another answers

    @property
    def client(self) -> str:
        return self.predictor.bundle.client

    @property
    def version(self) -> str:
        return self.predictor.bundle.version

    @property
    def about(self) -> About:
        return self.predictor.bundle.about

    def beside(self, read: Callable[[Path], T], otherwise: T) -> T:
        """What is found in the folder beside the models, if it still holds this version."""
        try:
            same = version_of(self.folder) == self.version
            found = read(place_of(self.folder)) if same else otherwise
            return found if version_of(self.folder) == self.version else otherwise
        except (UserError, OSError):
            return otherwise


class Library:
    """Opens a client's models on first use; all else about them is known from the beginning."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.trust, self.problem = trust, ""
        self.shelves = [Shelf.open(path) for path in paths]
        self.open: dict[str, Answerer] = {}
        self._lock = threading.Lock()
        _refuse_twice(self.shelves)
        for shelf in self.shelves:  # what cannot be opened is told at once, not to callers
            name = shelf.about.clients[0]
            self.open[name] = self._fresh(shelf.path, name)

    @property
    def clients(self) -> list[str]:
        return [name for shelf in self.shelves for name in shelf.about.clients]

    def known(self, client: str) -> tuple[About, str]:
        """What a client's models are of, and their version, though they may not be open yet."""
        opened = self.open.get(client)
        if opened is not None:
            return opened.about, opened.version
        shelf = self._shelf(client)
        return about_client(shelf.about, client), shelf.version

    def _shelf(self, client: str) -> Shelf:
        for shelf in self.shelves:
            if client in shelf.about.clients:
                return shelf
        raise Unusable(f"client {client} is no longer among those that are answered for")

    def _fresh(self, path: Path, client: str) -> Answerer:
        predictor = load(path, client, self.trust)
        version = predictor.bundle.version
        store.verify(place_of(path), store.code_of(place_of(path)))  # which is imported last
        if version_of(path) != version:
            raise store.Damaged(f"{path} was replaced while it was read: open it again")
        return Answerer(predictor, path, newest=version)

    def __getitem__(self, client: str) -> Answerer:
        """The version that answers now."""
        with self._lock:
            if client not in self.open:
                shelf = self._shelf(client)
                try:
                    self.open[client] = self._fresh(shelf.path, client)
                except UserError:  # it names files, which are no caller's affair
                    raise Unusable(f"the models of client {client} cannot be opened") from None
            return self.open[client]

    def refresh(self) -> list[str]:
        """Takes in models that changed on disk; returns whose. What cannot be read is left."""
        changed, problem = [], ""
        for i, shelf in enumerate(self.shelves):
            try:
                changed += self._renew(i, shelf)
            except Exception as error:  # the watcher goes on, and so do the old models
                problem = f"new models could not be read: {type(error).__name__}"
        self.problem = problem
        return changed

    def _renew(self, place: int, shelf: Shelf) -> list[str]:
        """Takes in what changed in one folder; of all its clients the same version."""
        version = version_of(shelf.path)
        mine = [a for a in list(self.open.values()) if a.folder == shelf.path]
        stale = [a.client for a in mine if a.newest != version]
        if shelf.version == version and not stale:
            return []
        fresh = Shelf.open(shelf.path)
        _refuse_twice([*self.shelves[:place], fresh, *self.shelves[place + 1 :]])
        loaded = {client: self._fresh(shelf.path, client) for client in stale}
        if {fresh.version, *(new.version for new in loaded.values())} != {version}:
            raise store.Damaged(f"{shelf.path} was replaced while it was read")
        with self._lock:
            for name, new in loaded.items():
                old = self.open[name]
                before = old.before if old.version == version else old.predictor
                self.open[name] = Answerer(
                    new.predictor, shelf.path, before, old.stream, new.version
                )
            self.shelves[place] = fresh
        return stale

    def roll_back(self, client: str, version: str | None = None) -> Answerer | None:
        """Goes back to the models before, if there are any and they are of the version asked for.

        Returns what answers then.
        """
        with self._lock:
            old = self.open.get(client)
            if old is None or version == old.version:
                return old
            if old.before is None:
                return None
            if version in (None, old.before.bundle.version):
                parts = (old.before, old.folder, old.predictor, old.stream, old.newest)
                self.open[client] = Answerer(*parts)
            return self.open[client]


def _refuse_twice(shelves: Sequence[Shelf]) -> None:
    """Refuses a client of whom several folders hold models."""
    names = [name for shelf in shelves for name in shelf.about.clients]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"client {twice[0]} is in several of these folders; serve one of them")
