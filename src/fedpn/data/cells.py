"""Cells of a table before anything is learned of its columns: each a value and what it looks like.

Columns of real tables are of many kinds, and which kind one has is for all clients together to say.
Until then a cell is what its own text tells.
"""

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpn.core.plain import composed

Array = NDArray[Any]

# The value is a number, days since 1970 of a date, or the fingerprint of a text.
CELL = np.dtype([("value", np.float64), ("kind", np.uint8)])


class Kind(IntEnum):
    """What a cell looks like."""

    MISSING = 0
    NUMBER = 1
    NO = 2
    YES = 3
    DATE = 4
    TEXT = 5


def fingerprint(text: str) -> float:
    """A text as a number of 32 bits, the same everywhere, however its case, its blanks and the
    accents of its letters are written.

    >>> fingerprint("Surgery") == fingerprint(" surgery ") != fingerprint("medicine")
    True
    >>> fingerprint("Gr\u00f6\u00dfe") == fingerprint("Gro\u0308\u00dfe")
    True
    """
    folded = composed(composed(text).casefold())
    spelled = " ".join(folded.split()).encode("utf-8", "backslashreplace")
    return float(int.from_bytes(hashlib.blake2b(spelled, digest_size=4).digest()))


def of_numbers(x: Array) -> Array:  # [...] -> cells [...]
    """Numbers as cells; what is not finite is missing.

    >>> of_numbers(np.array([1.5, np.nan]))["kind"].tolist()
    [1, 0]
    """
    cells = np.empty(x.shape, CELL)
    cells["value"] = x
    cells["kind"] = np.where(np.isfinite(cells["value"]), Kind.NUMBER, Kind.MISSING)
    return cells


def as_numbers(cells: Array) -> Array:
    """Numbers, and yes and no as 1 and 0; NaN for all else."""
    kind = cells["kind"]
    said = np.where(kind == Kind.YES, 1.0, np.where(kind == Kind.NO, 0.0, np.nan))
    return np.where(kind == Kind.NUMBER, cells["value"], said)


def as_days(cells: Array) -> Array:
    """Days since 1970; NaN for what is no date."""
    return np.where(cells["kind"] == Kind.DATE, cells["value"], np.nan)


def buckets(values: Array, bits: int) -> Array:
    """Spreads values over 2^bits numbers, alike everywhere (SplitMix64's last steps).

    >>> bool((buckets(np.array([1.0, 2.0]), 16) < 2**16).all())
    True
    """
    # Adding 0 makes -0 and 0 one value.
    mixed = (np.ascontiguousarray(values, np.float64) + 0.0).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(64 - bits)).astype(np.int64)
