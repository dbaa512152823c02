"""Disjoint train, calibration and test rows per client; what is known and unknown to each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.units import first_rows, one_of_each

TRAIN, CALIBRATION = 0.5, 0.2  # the rest is for testing
TUNING = 0.2  # of the training rows
LEAST = 4  # rows that give each use at least one


@dataclass(frozen=True, eq=False)
class Federation:
    """Rows of a dataset, by client and by use.

    All rows of a unit have one use, and one of them stands for the others in calibration:
    thresholds and promises are of units. The others are left over.
    """

    labels: Array  # [N], of the whole dataset
    train: tuple[Array, ...]
    calibration: tuple[Array, ...]
    test: tuple[Array, ...]
    seed: int
    elsewhere: tuple[Array, ...] = ()  # test rows of clients that are not among these
    units: Array | None = None  # [N], whose rows belong together; None: each row for itself

    @property
    def clients(self) -> int:
        return len(self.train)

    def only(self, clients: Sequence[int]) -> "Federation":
        """The same with some of the clients."""
        train, calibration, test = (
            tuple(use[client] for client in clients)
            for use in (self.train, self.calibration, self.test)
        )
        return Federation(self.labels, train, calibration, test, self.seed, units=self.units)

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

    def standing(self, rows: Array) -> Array:  # [n] -> [n], bool
        """Which rows stand for their units, one for each: these a test may take for independent."""
        if self.units is None:
            return np.ones(len(rows), bool)
        rng = seeds.stream("standing", self.seed)
        return np.isin(rows, one_of_each(rows, self.units[rows], rng))

    def copies(self, client: int) -> float:
        """The share of a client's training rows that a unit has beside its first."""
        rows = self.train[client]
        return 0.0 if self.units is None else 1 - len(np.unique(self.units[rows])) / len(rows)

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


def federate(
    labels: Array, owned: list[Array], seed: int, units: Array | None = None, across: bool = False
) -> Federation:
    """Splits each client's rows once, by seed: 50 % train, 20 % calibration, 30 % test.

    Units are dealt whole; `across` clients they have one use, where several have rows of one.

    >>> federation = federate(np.array([0, 1] * 10), [np.arange(10), np.arange(10, 20)], seed=0)
    >>> [len(use[0]) for use in (federation.train, federation.calibration, federation.test)]
    [5, 2, 3]
    """
    each = np.arange(len(labels)) if units is None else units
    used = [each[:0]] * 3
    parts = []
    for client, rows in enumerate(owned):
        parts.append(_parts(labels, rows, client, seed, each, used))
        if across:
            pairs = zip(used, parts[-1], strict=True)
            used = [np.concatenate([before, each[part]]) for before, part in pairs]
    train, calibration, test = zip(*parts, strict=True)
    federation = Federation(labels, train, calibration, test, seed, units=units)
    check_disjoint(federation)
    return federation


def together(labels: Array, old: Federation, new: Federation, first: int) -> Federation:
    """One client's old rows and its new ones, which come after the `first` rows: each keeps its
    use, so that what was tested on is never trained on, nor another row of its unit."""
    units = None
    if old.units is not None and new.units is not None:
        units = np.concatenate([old.units, new.units])
    each = np.arange(len(labels)) if units is None else units
    was = [use[0] for use in (old.train, old.calibration, old.test)]
    rest, seen = new.rows(0) + first, each[np.concatenate(was)]
    uses = []
    for place, (mine, more) in enumerate(
        zip(was, (new.train, new.calibration, new.test), strict=True)
    ):
        alike = np.isin(each[rest], each[mine])
        fresh = more[0][~np.isin(each[more[0] + first], seen)] + first
        repeated = rest[:0] if place == 1 else rest[alike]  # one of a unit stands in calibration
        uses.append(np.concatenate([mine, fresh, repeated]))
        rest = rest[~alike]
    train, calibration, test = ((np.sort(use),) for use in uses)
    whole = Federation(labels, train, calibration, test, old.seed, units=units)
    check_disjoint(whole)
    return whole


def _parts(
    labels: Array, rows: Array, client: int, seed: int, units: Array, used: list[Array]
) -> list[Array]:
    """A client's rows by use; units that other clients have `used` keep that use."""
    mine = units[rows]
    first = rows[first_rows(mine)[0]]
    if len(first) < LEAST:
        alike = f" of their own among {len(rows)}" if len(first) < len(rows) else ""
        raise UserError(
            f"client {client} has {len(first)} rows{alike} and needs {LEAST}, to "
            "have some to train, to calibrate and to test on; use fewer --clients or another "
            "partition"
        )
    shuffled = _shuffle(labels, first, seeds.stream("split", seed, client))
    cuts = [round(len(first) * TRAIN), round(len(first) * (TRAIN + CALIBRATION))]
    known = [np.isin(mine, use) for use in used]
    drawn = [np.isin(mine, units[part]) & ~np.any(known, 0) for part in np.split(shuffled, cuts)]
    # A unit that stands at another client does not stand again, unless nothing else would.
    standing = rows[drawn[1] if drawn[1].any() else known[1]]
    rng = seeds.stream("units", seed, client)
    found = [
        rows[drawn[0] | known[0]],
        one_of_each(standing, units[standing], rng),
        rows[drawn[2] | known[2]],
    ]
    if not all(map(len, found)):
        raise UserError(
            f"client {client} shares its groups of rows with other clients and is left with none "
            "to train, to calibrate or to test on; leave its rows out"
        )
    return found


def tuning(federation: Federation, seed: int) -> Federation:
    """Holds out 20 % of the training rows as test rows, to choose settings without the others.

    Calibration rows stay what they are; the federation's own test rows are left over.
    """
    train, held_out, units = [], [], federation.units
    for client, rows in enumerate(federation.train):
        first = rows if units is None else rows[first_rows(units[rows])[0]]
        if len(first) < 2:
            raise UserError(
                f"client {client} has {len(first)} training rows; tuning needs 2, to hold one out"
            )
        rng = seeds.stream("tuning", federation.seed, seed, client)
        shuffled = _shuffle(federation.labels, first, rng)
        cut = min(round(len(first) * (1 - TUNING)), len(first) - 1)
        kept = shuffled[:cut]
        stays = np.isin(rows, kept) if units is None else np.isin(units[rows], units[kept])
        train.append(rows[stays])
        held_out.append(rows[~stays])
    held = replace(federation, train=tuple(train), test=tuple(held_out), elsewhere=())
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
