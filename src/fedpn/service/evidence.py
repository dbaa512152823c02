"""Evidence that a share has become greater than a limit, which may be looked at after every input.

While inputs are marked with a chance of at most `limit`, each on its own or given those before, the
evidence exceeds 1/α at any time with a chance of at most α (Ville's inequality). It is a mixture
over when the share changed, before the first, second, … t-th 100 inputs with weights 1/(t(t+1)),
and over what it changed to (Shin, Ramdas and Rinaldo, 2022); so it holds a few numbers, however
many inputs come.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from scipy.special import betaincinv

ODDS = (1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)  # what the limit's odds may have been multiplied by
BLOCK = 100  # inputs between the times at which a change may begin
MOST = 1e9  # of each part: once inputs are as before, it is forgotten in a few hundred of them


def upper_bound(marked: int, rows: int, chance: float) -> float:
    """A share that is exceeded with a chance of at most `chance`, given so many marked rows.

    The bound of Clopper and Pearson (1934). Where a threshold was set by the ranks of these very
    rows it holds as well, as a prediction for new rows.

    >>> round(upper_bound(2, 100, 0.05), 3), upper_bound(0, 0, 0.05)
    (0.062, 1.0)
    """
    if marked >= rows:
        return 1.0
    return float(betaincinv(marked + 1, rows - marked, 1 - chance))


@dataclass
class Evidence:
    """
    >>> usual, more = Evidence(0.1), Evidence(0.1)
    >>> usual.see([i % 20 == 0 for i in range(1000)])
    >>> more.see([i % 5 == 0 for i in range(1000)])
    >>> usual.value < 1, more.value > 1000
    (True, True)
    """

    limit: float
    rows: int = 0
    marked: int = 0
    parts: list[float] = field(default_factory=lambda: [0.0] * len(ODDS))

    @property
    def value(self) -> float:
        begun = -(-self.rows // BLOCK)
        return sum(self.parts) / len(ODDS) + 1 / (begun + 1)

    def see(self, marks: Iterable[bool]) -> None:
        limit = self.limit
        scales = [1 - limit + odds * limit for odds in ODDS]
        ratios = {
            True: [odds / scale for odds, scale in zip(ODDS, scales, strict=True)],
            False: [1 / scale for scale in scales],
        }
        for mark in marks:
            time = self.rows / BLOCK + 1
            start = 1 / (time * (time + 1)) if self.rows % BLOCK == 0 else 0.0
            self.rows += 1
            self.marked += mark
            self.parts = [
                min((part + start) * ratio, MOST)
                for part, ratio in zip(self.parts, ratios[mark], strict=True)
            ]

    def state(self) -> dict[str, Any]:
        return {"rows": self.rows, "marked": self.marked, "parts": self.parts}

    @classmethod
    def of_state(cls, limit: float, state: dict[str, Any]) -> Self:
        return cls(limit, int(state["rows"]), int(state["marked"]), list(state["parts"]))
