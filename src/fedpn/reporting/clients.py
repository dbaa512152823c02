"""The figures of each client of several methods: as rows, and as pairs."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.core.settings import leaves
from fedpn.core.summary import SETS
from fedpn.reporting.compare import Method, differing
from fedpn.reporting.finished import ClientMetrics, read_clients, read_origin


class Seen(NamedTuple):
    """A method's clients, by their names, for each seed."""

    method: Method
    by_seed: dict[int, dict[str, ClientMetrics]]
    datasets: dict[int, str]

    def values(self, name: str) -> dict[int, list[float]]:
        """Accuracy on a set of rows by seed, of all clients that have such rows."""
        rows = {
            seed: [
                client.accuracy.get(self.method.headline, {}).get(name) for client in by.values()
            ]
            for seed, by in self.by_seed.items()
        }
        known = {seed: [v for v in values if v is not None] for seed, values in rows.items()}
        return {seed: values for seed, values in known.items() if values}


def look(method: Method) -> Seen:
    """Reads the clients of a method's runs."""
    by_seed, datasets = {}, {}
    for seed, path in zip(method.seeds, method.paths, strict=True):
        origin = read_origin(path)
        found = read_clients(path, origin)
        by_seed[seed] = {origin.clients[client.client]: client for client in found}
        datasets[seed] = origin.dataset
    return Seen(method, by_seed, datasets)


def pair(one: Seen, other: Seen, name: str) -> dict[int, list[float]]:
    """Differences on a set of rows, client by client, for each seed that both have."""
    found: dict[int, list[float]] = {}
    for seed in sorted(one.by_seed.keys() & other.by_seed.keys()):
        mine, theirs = one.by_seed[seed], other.by_seed[seed]
        _refuse_other_rows(one, other, seed)
        values = [
            (
                mine[client].accuracy.get(one.method.headline, {}).get(name),
                theirs[client].accuracy.get(other.method.headline, {}).get(name),
            )
            for client in mine
        ]
        pairs = [a - b for a, b in values if a is not None and b is not None]
        if pairs:
            found[seed] = pairs
    return found


def _refuse_other_rows(one: Seen, other: Seen, seed: int) -> None:
    """Clients are pairs only where they have the same rows."""
    mine, theirs = one.by_seed[seed], other.by_seed[seed]
    for client in {**mine, **theirs}:
        kept = [by.get(client) for by in (mine, theirs)]
        rows = [None if c is None else (c.rows, c.classes) for c in kept]
        if rows[0] != rows[1]:
            raise UserError(
                f"client {plain(client)} has other rows in {one.method.name} than in "
                f"{other.method.name}, though both are of seed {seed}: the data have changed, so "
                "that they cannot be compared; run one of them again"
            )


def long_rows(seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """A row for each run, client, way of answering and set of rows; values are shares of 1."""
    keys = differing([one.method for one in seen])
    flat = [dict(leaves(one.method.settings)) for one in seen]
    settings = {key: _of_one_kind([tree.get(key) for tree in flat]) for key in keys}
    return [
        {
            "run": str(path),
            "method": one.method.name,
            "dataset": one.datasets[seed],
            "algorithm": str(one.method.settings["algorithm"]),
            "seed": seed,
            "client": name,
            "answers": who,
            "headline": who == one.method.headline,
            "set": of,
            "value": by_set[of],
        }
        | {key: settings[key][i] for key in keys}
        for i, one in enumerate(seen)
        for seed, path in zip(one.method.seeds, one.method.paths, strict=True)
        for name, client in one.by_seed[seed].items()
        for who, by_set in client.accuracy.items()
        for of in SETS
        if by_set[of] is not None
    ]


def _of_one_kind(column: list[Any]) -> list[Any]:
    """Values of a column as they are where they are of one kind, else all as texts.

    >>> _of_one_kind([1, None, 2.5]), _of_one_kind([1, "auto"])
    ([1.0, None, 2.5], ['1', 'auto'])
    """
    kinds = {type(value) for value in column if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in column]
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        return column
    return [
        value if value is None or isinstance(value, str) else json.dumps(value, default=str)
        for value in column
    ]
