"""Records of cells -> mean and standard error over seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Tree = dict[str, Any]


class Stat(NamedTuple):
    """A figure over seeds, in %."""

    mean: float
    error: float | None  # where there are several seeds
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + (f" ± {self.error:.1f}" if self.error is not None else "")


def stat(values: Sequence[float]) -> Stat:
    """
    >>> str(stat([97.0, 98.0])), str(stat([97.0]))
    ('97.5 ± 0.5', '97.0')
    """
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return Stat(float(np.mean(values)), error, len(values))


@dataclass(frozen=True)
class Tally:
    """All records, by what was run."""

    records: tuple[Tree, ...]

    def sets(self) -> list[str]:
        """The datasets that have records."""
        return sorted({record["dataset"] for record in self.records})

    def alike(self, dataset: str) -> "Tally":
        """One set's records, of the seeds that every method was run with: a fair comparison.

        A seed deals the classes anew, and some deals are easier than others.
        """
        mine = [r for r in self.records if r["dataset"] == dataset]
        plain = [r for r in mine if not r["variant"]]
        seeds = [{r["seed"] for r in plain if r["algorithm"] == a["algorithm"]} for a in plain]
        common = set.intersection(*seeds) if seeds else set()
        return Tally(tuple(r for r in mine if r["seed"] in common))

    def of(self, dataset: str, algorithm: str, variant: str = "") -> list[Tree]:
        """The records of one cell, a seed each."""
        wanted = (dataset, algorithm, variant)
        return [r for r in self.records if (r["dataset"], r["algorithm"], r["variant"]) == wanted]

    def accuracy(
        self, dataset: str, algorithm: str, split: str, variant: str = "", who: str = ""
    ) -> Stat | None:
        """Accuracy of the method's own answer, or of the one named."""
        found = [_answer(r, split, who) for r in self.of(dataset, algorithm, variant)]
        return _stat(found, 100)

    def routing(self, dataset: str, key: str, algorithm: str = "fedpn", variant: str = "") -> Any:
        """A figure of the switch: auroc or gap_closed."""
        records = self.of(dataset, algorithm, variant)
        return _stat([r.get("routing", {}).get(key) for r in records], 1)

    def note(self, dataset: str) -> str:
        """What must be said beside every figure of a set."""
        return next((r["note"] for r in self.records if r["dataset"] == dataset), "")


def _answer(record: Tree, split: str, who: str) -> float | None:
    rows = record["accuracy"]
    value: float | None = rows.get(who or record["headline"], {}).get(split)
    return value


def _stat(values: Iterable[float | None], scale: float) -> Stat | None:
    there = [scale * v for v in values if v is not None]
    return stat(there) if there else None
