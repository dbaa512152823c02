"""Normalisation constants from sums that could be federated."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedpn.data.dataset import Array


class Moments(NamedTuple):
    """Sums over rows (and pixels), per channel or column: those of clients add up."""

    counts: Array
    total: Array
    squares: Array

    def __add__(self, other: object) -> "Moments":
        assert isinstance(other, Moments)
        return Moments(*(a + b for a, b in zip(self, other, strict=True)))


def moments(x: Array) -> Moments:
    """Counts and sums one client's training rows; exact for bytes."""
    if x.dtype == np.uint8:
        values = np.arange(256, dtype=np.float64)
        counts = np.stack([np.bincount(c.ravel(), minlength=256) for c in x.swapaxes(0, 1)])
        return Moments(counts.sum(1).astype(np.float64), counts @ values, counts @ values**2)
    x = x.astype(np.float64)
    return Moments(np.full(x.shape[1], float(len(x))), x.sum(0), np.square(x).sum(0))


def any_image(shape: Sequence[int]) -> Moments:
    """What is known of images before any is seen: bytes, evenly spread.

    >>> constants(any_image((1, 8, 8)))[0]
    [127.5]
    """
    values = np.arange(256, dtype=np.float64)
    ones = np.ones(shape[0])
    return Moments(256 * ones, values.sum() * ones, (values**2).sum() * ones)


def constants(m: Moments) -> tuple[list[float], list[float]]:
    """Mean and standard deviation; a constant channel is left at its scale.

    >>> constants(moments(np.array([[1.0, 5.0], [3.0, 5.0]])))
    ([2.0, 5.0], [1.0, 1.0])
    """
    mean = m.total / m.counts
    variance = np.maximum(m.squares / m.counts - mean**2, 0)
    std = np.sqrt(np.where(variance > 1e-12 * np.maximum(mean**2, 1e-12), variance, 1))
    return mean.tolist(), std.tolist()
