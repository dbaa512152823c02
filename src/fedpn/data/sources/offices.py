"""The set `offices`: handwritten digits at ten unlike clients, which `fedpn run` plays by default.

A client's own model, the federation's model and refusal each matter here. Every office receives
five of the ten digits (label shift) through one of four scanners (feature shift); one office has
few rows, and one names its digits by another scheme (concept shift).
"""

from dataclasses import replace

import numpy as np

from fedpn.core import seeds
from fedpn.data.dataset import Array, Dataset
from fedpn.data.shift import shift_clients

OFFICES, DIGITS, SEED = 10, 5, 0
SMALL, FEW = 8, 20  # the office with few rows, and how many
RENAMED = 9  # the office with labels of its own
NOTE = (
    "handwritten digits at ten offices: each receives five of the digits, by one of four scanners; "
    "office 9 has 20 rows, and office 10 labels its digits by a scheme of its own"
)


def offices(digits: Dataset) -> Dataset:
    """Deal the digits to ten offices; the same rows each time, whatever the seed of a run."""
    rng = seeds.stream("offices", SEED)
    owner = np.empty(len(digits), np.int64)
    for digit in range(OFFICES):  # the offices of digit 7 are 3, 4, 5, 6 and 7, counted from 0
        rows = rng.permutation(np.flatnonzero(digits.y == digit))
        owner[rows] = (digit - np.arange(len(rows)) % DIGITS) % OFFICES
    owned = [np.flatnonzero(owner == office) for office in range(OFFICES)]
    images = shift_clients(digits.x, owned, SEED, "pictures")
    owned[SMALL] = np.sort(rng.permutation(owned[SMALL])[:FEW])
    labels = digits.y.copy()
    labels[owned[RENAMED]] = _rotated(digits.y[owned[RENAMED]])
    rows, office = np.concatenate(owned), np.repeat(np.arange(OFFICES), [len(r) for r in owned])
    names = tuple(f"office {number + 1}" for number in range(OFFICES))
    return replace(
        digits,
        name="offices",
        x=images[rows],
        y=labels[rows],
        client=office,
        clients=names,
        note=NOTE,
    )


def _rotated(labels: Array) -> Array:
    """Give each class the name of the next one among those that occur.

    >>> _rotated(np.array([2, 5, 7, 2]))
    array([5, 7, 2, 5])
    """
    kinds = np.unique(labels)
    return np.roll(kinds, -1)[np.searchsorted(kinds, labels)]
