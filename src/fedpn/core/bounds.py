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

    def breach(self, value: float) -> str:
        """What a value that is not admitted must be; of a wide range the end that it is beyond.

        >>> Bounds(low=1, high=10**6).breach(0), Bounds(low=0, high=1).breach(2)
        ('at least 1', 'from 0 to 1')
        """
        if self.low is None or self.high is None or self.high < 1000:
            return str(self)
        return f"at least {self.low:g}" if value < self.low else f"at most {self.high:.15g}"

    def __str__(self) -> str:
        low = f"above {self.above:g}" if self.above is not None else ""
        low = f"at least {self.low:g}" if self.low is not None else low
        if self.below is not None:
            return f"{low} and below {self.below:g}".removeprefix(" and ")
        if self.high is None:
            return low
        if self.low is not None:
            return f"from {self.low:.15g} to {self.high:.15g}"
        return f"{low} and at most {self.high:g}".removeprefix(" and ")


# Whatever is counted: more is a slip of the finger, or meant to take all memory.
Count = Annotated[int, Bounds(low=1, high=10**6)]
Width = Annotated[int, Bounds(low=1, high=2**16)]
Depth = Annotated[int, Bounds(low=1, high=1000)]
AutoCount = Annotated[int, Bounds(low=0, high=1024, auto=True)]
Natural = Annotated[int, Bounds(low=0, high=10**6)]
Seed = Annotated[int, Bounds(low=0, high=2**63 - 1)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(low=0)]
Share = Annotated[float, Bounds(low=0, high=1)]
SomeShare = Annotated[float, Bounds(above=0, high=1)]
SmallShare = Annotated[float, Bounds(low=0, below=1)]
OpenShare = Annotated[float, Bounds(above=0, below=1)]
