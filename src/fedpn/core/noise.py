"""Gaussian noise from a cryptographic source, for what must not be guessed or drawn again."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Source = Callable[[int], bytes]  # so many random bytes

system: Source = os.urandom


def keyed(key: bytes) -> Source:
    """A stream that only who has the key can draw again: SHAKE-256 of the key and a counter."""
    drawn = 0

    def source(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(key + drawn.to_bytes(8, "big")).digest(count)

    return source


def normal(shape: Sequence[int], source: Source = system) -> Tensor:
    """Standard normal numbers in float64, 64 random bits each: a sign, and a tail to 9 σ.

    >>> normal([2, 3]).shape
    torch.Size([2, 3])
    """
    bits = np.frombuffer(source(8 * math.prod(shape)), "<u8")
    # The lower half of the distribution alone: beside 1, small probabilities would be lost.
    tail = torch.from_numpy(((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64)
    sign = torch.from_numpy(np.where(bits & np.uint64(1), -1.0, 1.0))
    drawn: Tensor = sign * torch.special.ndtri(tail)
    return drawn.reshape(tuple(shape))
