"""Units: rows that belong together, those of one patient or copies of one row, and count as one.

A unit is a number of 64 bits, the fingerprint of its name or of a row's bytes: equal ones are equal
everywhere, so that clients can compare theirs.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from fedpn.data.cells import Array


def of_rows(x: Array) -> Array:  # [N, ...] -> int64 [N]
    """Exact copies of a row are one unit.

    >>> same = of_rows(np.array([[1, 2], [3, 4], [1, 2]]))
    >>> bool(same[0] == same[2] != same[1])
    True
    """
    return _fingerprints(row.tobytes() for row in x)


def of_names(names: Array) -> Array:  # [N] -> int64 [N]
    """Rows of one name are one unit."""
    return _fingerprints(str(name).encode("utf-8", "backslashreplace") for name in names.tolist())


def _fingerprints(values: Iterable[bytes]) -> Array:
    digests = (hashlib.blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def first_rows(units: Array) -> tuple[Array, Array]:  # [N] -> [U], [N]
    """The place of each unit's first row, in order; and of each row the number of its unit.

    >>> [found.tolist() for found in first_rows(np.array([7, 3, 7, 5]))]
    [[0, 1, 3], [0, 1, 0, 2]]
    """
    _, first, number = np.unique(units, return_index=True, return_inverse=True)
    order = first.argsort()
    return first[order], order.argsort()[number]


def one_of_each(rows: Array, units: Array, rng: np.random.Generator) -> Array:
    """One row of each unit, drawn at random: independent where units are.

    >>> one_of_each(np.array([4, 6, 8]), np.array([1, 2, 1]), np.random.default_rng(0)).tolist()
    [6, 8]
    """
    order = rng.permutation(len(rows))
    return np.sort(rows[order[np.unique(units[order], return_index=True)[1]]])
