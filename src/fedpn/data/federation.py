"""Disjoint train, calibration and test rows per client; what is known and unknown to each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array

TRAIN, CALIBRATION = 0.5, 0.2  # the rest is for testing
TUNING = 0.2  # of the training rows
LEAST = 4  # rows that give each use at least one


@dataclass(frozen=True, eq=False)
class Federation:
    """Rows of a dataset, by client and by use."""

    labels: Array  # [N], of the whole dataset
    train: tuple[Array, ...]
    calibration: tuple[Array, ...]
    test: tuple[Array, ...]
    seed: int
    elsewhere: tuple[Array, ...] = ()  # test rows of clients that are not among these

    @property
    def clients(self) -> int:
        return len(self.train)

    def only(self, clients: Sequence[int]) -> "Federation":
        """The same with some of the clients."""
        train, calibration, test = (
            tuple(use[client] for client in clients)
            for use in (self.train, self.calibration, self.test)
        )
        return Federation(self.labels, train, calibration, test, self.seed)

    def beside(self, clients: Sequence[int]) -> "Federation":
        """The same with some of the clients, judged beside the test rows of the others."""
        others = [rows for client, rows in enumerate(self.test) if client not in set(clients)]
        return replace(self.only(clients), elsewhere=(*self.elsewhere, *others))

    def rows(self, client: int) -> Array:
        """All rows of a client."""
        uses = (self.train, self.calibration, self.test)
        return np.sort(np.concatenate([use[client] for use in uses]))

    def owned(self, client: int) -> Array:
        """The classes that a client has rows of."""
        return np.flatnonzero(self.counts[client])

    def ind(self, client: int) -> Array:
        """InD: the client's own test rows."""
        return self.test[client]

    def ood(self, client: int) -> Array:
        """OOD: the test rows of all clients whose class this client does not own."""
        unknown: Array = self.counts[client][self._pool_labels] == 0
        return self._pool[unknown]

    def mix(self, client: int) -> Array:
        """Mix: equal numbers of both, drawn by the seed; the known ones come first."""
        known, unknown = self.ind(client), self.ood(client)
        size = min(len(known), len(unknown))
        rng = seeds.stream("mix", self.seed, client)
        return np.concatenate([np.sort(rng.permutation(rows)[:size]) for rows in (known, unknown)])

    def others(self, client: int) -> Array:
        """As many test rows of other clients, drawn by the seed: not its own, of any class."""
        rows = np.setdiff1d(self._pool, self.test[client])
        rng = seeds.stream("others", self.seed, client)
        return np.sort(rng.permutation(rows)[: len(self.test[client])])

    @cached_property
    def counts(self) -> Array:  # [clients, classes]
        """How many rows of each class a client has."""
        kinds = int(self.labels.max()) + 1
        rows = (self.labels[self.rows(client)] for client in range(self.clients))
        return np.stack([np.bincount(labels, minlength=kinds) for labels in rows])

    @cached_property
    def left_over(self) -> Array:
        """The rows that nobody uses."""
        used = np.zeros(len(self.labels), dtype=bool)
        for use in (self.train, self.calibration, self.test):
            used[np.concatenate(use)] = True
        return np.flatnonzero(~used)

    @cached_property
    def _pool(self) -> Array:
        return np.sort(np.concatenate([*self.test, *self.elsewhere]))

    @cached_property
    def _pool_labels(self) -> Array:
        return self.labels[self._pool]


def federate(labels: Array, owned: list[Array], seed: int) -> Federation:
    """Splits each client's rows once, by seed: 50 % train, 20 % calibration, 30 % test.

    >>> federation = federate(np.array([0, 1] * 10), [np.arange(10), np.arange(10, 20)], seed=0)
    >>> [len(use[0]) for use in (federation.train, federation.calibration, federation.test)]
    [5, 2, 3]
    """
    parts = [_parts(labels, rows, client, seed) for client, rows in enumerate(owned)]
    train, calibration, test = zip(*parts, strict=True)
    federation = Federation(labels, train, calibration, test, seed)
    check_disjoint(federation)
    return federation


def together(labels: Array, old: Federation, new: Federation, first: int) -> Federation:
    """One client's old rows and its new ones, which come after the `first` rows: each keeps its
    use, so that what was tested on is never trained on."""
    train, calibration, test = (
        (np.concatenate([mine[0], more[0] + first]),)
        for mine, more in (
            (old.train, new.train),
            (old.calibration, new.calibration),
            (old.test, new.test),
        )
    )
    whole = Federation(labels, train, calibration, test, old.seed)
    check_disjoint(whole)
    return whole


def _parts(labels: Array, rows: Array, client: int, seed: int) -> list[Array]:
    if len(rows) < LEAST:
        raise UserError(
            f"client {client} has {len(rows)} rows and needs {LEAST}, to have some to train, "
            "to calibrate and to test on; use fewer --clients or another partition"
        )
    shuffled = _shuffle(labels, rows, seeds.stream("split", seed, client))
    cuts = [round(len(rows) * TRAIN), round(len(rows) * (TRAIN + CALIBRATION))]
    return [np.sort(part) for part in np.split(shuffled, cuts)]


def tuning(federation: Federation, seed: int) -> Federation:
    """Holds out 20 % of the training rows as test rows, to choose settings without the others.

    Calibration rows stay what they are; the federation's own test rows are left over.
    """
    train, held_out = [], []
    for client, rows in enumerate(federation.train):
        if len(rows) < 2:
            raise UserError(
                f"client {client} has {len(rows)} training rows; tuning needs 2, to hold one out"
            )
        rng = seeds.stream("tuning", federation.seed, seed, client)
        shuffled = _shuffle(federation.labels, rows, rng)
        cut = min(round(len(rows) * (1 - TUNING)), len(rows) - 1)
        train.append(np.sort(shuffled[:cut]))
        held_out.append(np.sort(shuffled[cut:]))
    calibration = federation.calibration
    held = Federation(
        federation.labels, tuple(train), calibration, tuple(held_out), federation.seed
    )
    check_disjoint(held)
    return held


def check_disjoint(federation: Federation) -> None:
    """Refuses a federation in which a row has two places: the leak check."""
    rows = np.concatenate([*federation.train, *federation.calibration, *federation.test])
    counts = np.bincount(rows, minlength=len(federation.labels))
    if (counts > 1).any():
        row = int(np.flatnonzero(counts > 1)[0])
        places = " and ".join(_places(federation, row))
        raise UserError(f"row {row} is among the {places}: its figures would leak")


def _places(federation: Federation, row: int) -> list[str]:
    uses = {
        "training": federation.train,
        "calibration": federation.calibration,
        "test": federation.test,
    }
    return [
        f"{name} rows of client {client}"
        for name, parts in uses.items()
        for client, part in enumerate(parts)
        for _ in range(int((part == row).sum()))
    ]


def _shuffle(labels: Array, rows: Array, rng: np.random.Generator) -> Array:
    """Shuffles rows, one of each class first: what is trained on holds every class that it can."""
    shuffled = rng.permutation(rows)
    first = np.unique(labels[shuffled], return_index=True)[1]
    return np.concatenate([rng.permutation(shuffled[first]), np.delete(shuffled, first)])
