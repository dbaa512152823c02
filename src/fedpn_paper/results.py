"""Records of cells -> mean and standard error over seeds."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

Tree = dict[str, Any]
SURE = 0.95  # of a one-sided t-test


class Stat(NamedTuple):
    """A figure over seeds."""

    mean: float
    error: float | None  # where there are several seeds
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.error:.1f}" if self.error is not None else "")

    @property
    def signed(self) -> str:
        """
        >>> stat([1.0, 2.0]).signed, stat([-0.04]).signed
        ('+1.5 ± 0.5', '0.0')
        """
        rounded = round(self.mean, 1)
        return ("+" if rounded > 0 else "") + str(self._replace(mean=rounded or 0.0))

    @property
    def is_clear(self) -> bool:
        """Tells whether it is above zero beyond what chance among seeds gives.

        >>> stat([1.0, 1.1, 0.9]).is_clear, stat([3.0, 0.1, 0.2]).is_clear, stat([9.0]).is_clear
        (True, False, False)
        """
        if self.error is None:
            return False
        return bool(self.mean > stdtrit(self.seeds - 1, SURE) * self.error)


class Duel(NamedTuple):
    """FedPN beside another method on the seeds that both were run with.

    A seed deals the classes anew, and some deals are easier than others.
    """

    other: str
    ours: Stat
    theirs: Stat
    lead: Stat  # seed by seed
    seeds: tuple[int, ...]


def stat(values: Sequence[float]) -> Stat:
    """
    >>> str(stat([97.0, 98.0])), str(stat([97.0]))
    ('97.5 ± 0.5', '97.0')
    """
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Stat(float(np.mean(values)), error, len(values))


@dataclass(frozen=True)
class Results:
    """All records, by what was run."""

    records: tuple[Tree, ...]

    def sets(self) -> list[str]:
        """The datasets that have records."""
        return sorted({record["dataset"] for record in self.records})

    def of(self, dataset: str, algorithm: str, variant: str = "") -> list[Tree]:
        """The records of one cell, a seed each."""
        wanted = (dataset, algorithm, variant)
        return [r for r in self.records if (r["dataset"], r["algorithm"], r["variant"]) == wanted]

    def by_seed(
        self, dataset: str, algorithm: str, split: str, variant: str = "", who: str = ""
    ) -> dict[int, float]:
        """Accuracy in % of the method's own answer, or of the one named."""
        found = {r["seed"]: _answer(r, split, who) for r in self.of(dataset, algorithm, variant)}
        return {seed: 100 * value for seed, value in found.items() if value is not None}

    def accuracy(
        self,
        dataset: str,
        algorithm: str,
        split: str,
        variant: str = "",
        who: str = "",
        seeds: Collection[int] | None = None,
    ) -> Stat | None:
        """The same over all seeds, or over some."""
        found = self.by_seed(dataset, algorithm, split, variant, who)
        there = [value for seed, value in found.items() if seeds is None or seed in seeds]
        return stat(there) if there else None

    def duel(
        self, dataset: str, other: str, split: str, who: str = "", variant: str = ""
    ) -> Duel | None:
        """Sets FedPN beside another, where they have a seed in common."""
        ours = self.by_seed(dataset, "fedpn", split, who=who)
        theirs = self.by_seed(dataset, other, split, variant)
        seeds = tuple(sorted(ours.keys() & theirs.keys()))
        if not seeds:
            return None
        pairs = [(ours[seed], theirs[seed]) for seed in seeds]
        mine, yours = (stat(column) for column in zip(*pairs, strict=True))
        return Duel(other, mine, yours, stat([a - b for a, b in pairs]), seeds)

    def routing(self, dataset: str, *keys: str, variant: str = "") -> Stat | None:
        """A figure of FedPN's switch, such as auroc or delegated, ind."""
        values = []
        for record in self.of(dataset, "fedpn", variant):
            value: Any = record["routing"]
            for key in keys:
                value = value[key]
            values.append(value)
        there = [value for value in values if value is not None]
        return stat(there) if there else None

    def note(self, dataset: str) -> str:
        """What must be said beside every figure of a set."""
        return next((r["note"] for r in self.records if r["dataset"] == dataset), "")


def _answer(record: Tree, split: str, who: str) -> float | None:
    value: float | None = record["accuracy"].get(who or record["headline"], {}).get(split)
    return value
