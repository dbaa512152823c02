"""Which methods differ beyond chance: every pair, on every set of rows, in words."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from fedpn.core.paired import Difference, holm, nested
from fedpn.core.summary import SETS
from fedpn.reporting.clients import Seen, pair

CLEAR = 0.05  # a corrected p below this tells methods apart
FEW = 5  # seeds: with fewer, chance among them is hardly known
ROWS = {"ind": "own rows", "ood": "foreign rows", "mix": "own and foreign rows"}


class Compared(NamedTuple):
    """Two methods on a set of rows; the first is the one with more right answers."""

    better: str
    other: str
    rows: str  # ind, ood, mix
    found: Difference
    corrected: float  # p, made larger for so many comparisons
    gaining: float  # share of clients, of all seeds, who are better off with the first
    seeds: tuple[int, ...]

    @property
    def is_clear(self) -> bool:
        return self.corrected < CLEAR

    def row(self) -> dict[str, Any]:
        """The comparison as numbers, differences as shares of 1."""
        low, high = self.found.interval or (None, None)
        return {
            "better": self.better,
            "other": self.other,
            "set": self.rows,
            "difference": self.found.mean,
            "low": low,
            "high": high,
            "p": self.found.p,
            "p_holm": self.corrected,
            "clients_better": self.gaining,
            "clients": self.found.clients,
            "seeds": self.found.seeds,
        }

    def __str__(self) -> str:
        where, points = ROWS[self.rows], f"{100 * self.found.mean:.1f} points"
        share = f"{100 * self.gaining:.0f} % of clients are better off with {self.better}"
        told = f"{self.better} is above {self.other} on {where} by {points}"
        if not self.is_clear:
            told = f"{self.better} and {self.other} are not told apart on {where}: {points}"
        return f"{told} ({self._sure()}); {share}"

    def _sure(self) -> str:
        """How sure the difference is."""
        clients = f"{self.found.clients} clients"
        over = f"{clients} × {self.found.seeds} seeds" if self.found.over_seeds else clients
        p = f"p {_short(self.corrected)} over {over}"
        if self.found.interval is None:
            return p
        low, high = map(_points, self.found.interval)
        return f"95 % interval {low} to {high}, {p}"


def differences(seen: Sequence[Seen]) -> list[Compared]:
    """All pairs of methods that have seeds in common; on each set of rows, which is a question of
    its own, p-values are corrected for the number of pairs."""
    found = list(_all(seen))
    for name in SETS:
        places = [i for i, one in enumerate(found) if one.rows == name]
        corrected = holm([found[i].found.p for i in places])
        for i, p in zip(places, corrected, strict=True):
            found[i] = found[i]._replace(corrected=p)
    return found


def _all(seen: Sequence[Seen]) -> Iterator[Compared]:
    for one, other in combinations(seen, 2):
        for name in SETS:
            by_seed = pair(one, other, name)
            difference = nested(list(by_seed.values())) if by_seed else None
            if difference is None:
                continue
            names = (one.method.name, other.method.name)
            sign = 1
            if difference.mean < 0:
                difference, sign, names = _turned(difference), -1, names[::-1]
            each = [sign * value for values in by_seed.values() for value in values]
            gaining = sum(value > 0 for value in each) / len(each)
            seeds = tuple(by_seed)
            yield Compared(*names, name, difference, difference.p, gaining, seeds)


def _turned(difference: Difference) -> Difference:
    """The same the other way round."""
    ends = difference.interval
    interval = None if ends is None else (-ends[1], -ends[0])
    return difference._replace(mean=-difference.mean, interval=interval)


def assumptions(found: Sequence[Compared]) -> list[str]:
    """How p-values came about, and what they speak of."""
    pairs = max((sum(one.rows == name for one in found) for name in SETS), default=0)
    many = f", corrected for {pairs} pairs on each set of rows (Holm)" if pairs > 1 else ""
    seeds = [one.found.seeds for one in found if one.found.over_seeds]
    said = []
    if seeds:
        said.append(
            f"p: a paired t-test over seeds, each the mean over its clients, which share a model"
            f"{many}. It speaks of these data dealt and trained anew, not of other data."
        )
    if seeds and min(seeds) < FEW and not all(one.is_clear for one in found):
        said.append(f"{min(seeds)} seeds tell only large differences; {FEW} or more tell smaller.")
    if len(seeds) < len(found):
        said.append(
            f"p over the clients of one seed: a paired t-test{many}. Seeds were not varied, and "
            "clients share a model: another deal or start may turn the order. Run more seeds."
        )
    return said


def _points(share: float) -> str:
    """
    >>> _points(-0.0123), _points(-0.0001)
    ('−1.2', '0.0')
    """
    return f"{round(100 * share, 1) or 0.0:.1f}".replace("-", "−")


def _short(p: float) -> str:
    """
    >>> _short(0.04321), _short(0.00001), _short(1.0)
    ('= 0.043', '< 0.001', '= 1')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"
