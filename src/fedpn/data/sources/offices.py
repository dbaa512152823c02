"""The set `offices`: handwritten digits at ten unlike clients, which `fedpn run` plays by default.

A client's own model, the federation's model and refusal each matter here. Every office receives
three of the ten digits (label shift) through one of four scanners (feature shift); one office has
few rows, and one names its digits by another scheme (concept shift).
"""

from dataclasses import replace

import numpy as np

from fedpn.data.dataset import Array, Dataset
from fedpn.data.partition import classes
from fedpn.data.shift import shift_clients

OFFICES, SEED = 10, 0
SMALL, FEW = 8, 20  # the office with few rows, and how many
RENAMED = 9  # the office with labels of its own
NOTE = (
    "handwritten digits at ten offices: each receives three of the digits, by one of four "
    "scanners; office 9 has 20 rows, and office 10 labels its digits by a scheme of its own"
)


def offices(digits: Dataset) -> Dataset:
    """Deal the digits to ten offices; the same rows each time, whatever the seed of a run."""
    owned = classes(digits.y, OFFICES, SEED)
    images = shift_clients(digits.x, owned, SEED, "pictures")
    owned[SMALL] = owned[SMALL][:FEW]
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
