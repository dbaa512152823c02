"""Independent parts of a job side by side, in two threads that share the cores.

Mapped steps are kernels, which can use all cores, and glue between them, which cannot. Two threads
that play different clients keep the cores busy through both; more would queue for Python's lock.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

Part = TypeVar("Part")
Result = TypeVar("Result")

Array = npt.NDArray[np.int64]

LANES = 2


def lanes(device: torch.device) -> int:
    """How many parts are worth playing side by side on a device."""
    return min(LANES, torch.get_num_threads()) if device.type == "cpu" else 1


def cohorts_of(
    clients: Array, size: int, count: int, steps: Array | None = None, overhead: float = math.inf
) -> list[Array]:
    """Part clients into cohorts of at most `size`, to be played `count` side by side.

    Clients that are stacked take as many steps as the one with most, so those with alike numbers of
    steps are put together: a new cohort begins where idling would cost more than its `overhead`,
    in steps of one client, for each of its steps.

    >>> [len(cohort) for cohort in cohorts_of(np.arange(20), 80, 2)]
    [10, 10]
    >>> [len(cohort) for cohort in cohorts_of(np.arange(3), 1, 2)]
    [1, 1, 1]
    >>> cohorts_of(np.arange(4), 80, 1, steps=np.array([9, 1, 9, 1]), overhead=2)
    [array([0, 2]), array([1, 3])]
    """
    groups: list[list[int]] = []
    counts = np.zeros(len(clients), np.int64) if steps is None else steps
    most, idle = 0, 0.0
    for place in np.argsort(-counts, kind="stable").tolist():
        own = int(counts[place])
        if not groups or idle + most - own > overhead * own:
            groups.append([])
            most, idle = own, 0.0
        groups[-1].append(place)
        idle += most - own
    parts = [np.array(group, np.int64) for group in groups]
    pieces = [min(math.ceil(len(part) / size) * count, len(part)) for part in parts]
    split = zip(parts, pieces, strict=True)
    return [clients[piece] for part, n in split for piece in np.array_split(part, n)]


def side_by_side(
    play: Callable[[Part], Result], parts: Sequence[Part], count: int
) -> Iterator[Result]:
    """Yields what each part gives, in their order; no more than `count` are under way.

    >>> list(side_by_side(lambda part: part * part, [1, 2, 3], count=2))
    [1, 4, 9]
    """
    if min(count, len(parts)) < 2:
        yield from map(play, parts)
        return
    pool = _pool(count, torch.get_num_threads())
    for first in range(0, len(parts), count):
        yield from pool.map(play, parts[first : first + count])


@cache
def _pool(count: int, threads: int) -> ThreadPoolExecutor:
    begun = Barrier(count + 1)

    def begin() -> None:
        torch.set_num_threads(max(threads // count, 1))
        torch.get_num_threads()  # settles it: else the next use would take what others set
        begun.wait()

    pool = ThreadPoolExecutor(count, "fedpn", begin)
    for _ in range(count):
        pool.submit(lambda: None)
    begun.wait()
    torch.set_num_threads(threads)  # what a worker says of itself is also said to threads to come
    return pool
