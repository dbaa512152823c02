"""Whether two methods differ, told from pairs of figures: clients within seeds.

A seed deals the rows anew and trains one federation, so that its clients share a model and rise and
fall together: they are no independent witnesses, and seeds are. So figures are brought to one
difference for each seed, the mean over its clients, and a t-test looks whether these are zero on
average. That is the exact test of a nested design (differences = mean + seed + client, normal) in
which the error is the spread between seeds. Counting clients instead would find differences that
are none; resampling two or three seeds as well.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

SURE = 0.95
TINY = 1e-12  # of figures between 0 and 1: below this, a spread is rounding


class Difference(NamedTuple):
    """A mean difference, and how sure it is."""

    mean: float
    interval: tuple[float, float] | None  # None: where nothing varies, there is no telling
    p: float  # the chance of at least such a difference where there is none
    seeds: int
    clients: int  # in each seed, on average

    @property
    def over_seeds(self) -> bool:
        """Whether seeds were varied; else it is told from the clients of one seed."""
        return self.seeds > 1


def nested(by_seed: Sequence[Sequence[float]]) -> Difference | None:
    """The mean difference from those of each seed's clients; None where there is but one client.

    With one seed, clients stand for themselves: that says nothing of another deal or start.

    >>> found = nested([[0.02, 0.04], [0.04, 0.06], [0.01, 0.03]])
    >>> round(found.mean, 4), round(found.p, 4), found.seeds, found.clients
    (0.0333, 0.0634, 3, 2)
    """
    units = [float(np.mean(clients)) for clients in by_seed]
    if len(by_seed) == 1:
        units = list(by_seed[0])
    if len(units) < 2:
        return None
    interval, p = t_test(units)
    clients = round(float(np.mean([len(clients) for clients in by_seed])))
    return Difference(float(np.mean(units)), interval, p, len(by_seed), clients)


def t_test(units: Sequence[float]) -> tuple[tuple[float, float] | None, float]:
    """The interval of a mean, and the p-value of its being zero.

    Where all units are the same, their signs alone tell: n equal ones come by chance in 2 of 2ⁿ.
    """
    count, mean = len(units), float(np.mean(units))
    error = float(np.std(units, ddof=1)) / math.sqrt(count)
    if error < TINY:
        return None, 1.0 if abs(mean) < TINY else min(1.0, 2.0 ** (1 - count))
    reach = float(stdtrit(count - 1, (1 + SURE) / 2)) * error
    return (mean - reach, mean + reach), 2 * float(stdtr(count - 1, -abs(mean) / error))


def mean_interval(units: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean; None where there are too few units to tell."""
    return t_test(units)[0] if len(units) > 1 else None


def holm(p: Sequence[float]) -> list[float]:
    """Makes p-values larger, so that of all together at most a share is wrongly small (Holm, 1979).

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, least = [1.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return adjusted
