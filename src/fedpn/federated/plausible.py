"""Whether what one client sends can be true beside what the others send.

A single one that is finite and absurd would own any mean. Robust means are for attackers who know
better; this is for the rest, and costs honest clients nothing.
"""

from collections.abc import Sequence
from statistics import median

import torch

from fedpn.core.trees import Params, move

ABSURD = 1e30  # of a loss; those of models that noise has spoiled come near
FACTOR = 10.0  # times as far as the others' median, and still believed


def length(params: Params) -> float:
    """The length of tensors taken as one vector, in float64."""
    squares = [t.double().square().sum() for t in params.values()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def may_weigh(weight: float, rows: int) -> bool:
    """Whether a client with so many training rows may weigh so much in a sum."""
    return 0 < weight <= max(rows, 1)


def outsized(lengths: Sequence[float], factor: float, floor: float = 0.0) -> list[int]:
    """The places of those that are longer than `factor` times the median of the others.

    What is below the floor is never too long. Of two nobody is in the majority, so that the factor
    counts twice; one alone has nobody to differ from.

    >>> outsized([1.0, 2.0, 1.5, 400.0], 10.0)
    [3]
    >>> outsized([1.0, 50.0], 10.0), outsized([1.0, 500.0], 10.0)
    ([], [1])
    """
    found = []
    for place, mine in enumerate(lengths):
        others = [*lengths[:place], *lengths[place + 1 :]]
        if not others:
            continue
        allowed = factor if len(others) > 1 else factor**2
        if mine > max(allowed * median(others), floor):
            found.append(place)
    return found


def moved(before: Params, upload: Params) -> float:
    """How far tensors are from what was sent."""
    return length({n: move(t, before[n]) if n in before else t for n, t in upload.items()})
