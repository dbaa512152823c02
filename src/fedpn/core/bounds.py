"""Kinds of settings: a type with its bounds, which `settings.py` checks."""

from typing import Annotated, NamedTuple


class Bounds(NamedTuple):
    """The values that a number may take; `above` and `below` leave the ends themselves out.

    >>> Bounds(low=0, high=1).admit(0.5), Bounds(above=0).admit(0)
    (True, False)
    >>> str(Bounds(low=0, high=1)), str(Bounds(above=0))
    ('from 0 to 1', 'above 0')
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    auto: bool = False  # whether "auto" stands for 0, and 0 for fedpn's own choice

    def admit(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        low = f"above {self.above:g}" if self.above is not None else ""
        low = f"at least {self.low:g}" if self.low is not None else low
        if self.below is not None:
            return f"{low} and below {self.below:g}".removeprefix(" and ")
        if self.high is None:
            return low
        if self.low is not None:
            return f"from {self.low:g} to {self.high:g}"
        return f"{low} and at most {self.high:g}".removeprefix(" and ")


Count = Annotated[int, Bounds(low=1)]
AutoCount = Annotated[int, Bounds(low=0, auto=True)]
Natural = Annotated[int, Bounds(low=0)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(low=0)]
Share = Annotated[float, Bounds(low=0, high=1)]
SomeShare = Annotated[float, Bounds(above=0, high=1)]
SmallShare = Annotated[float, Bounds(low=0, below=1)]
OpenShare = Annotated[float, Bounds(above=0, below=1)]
