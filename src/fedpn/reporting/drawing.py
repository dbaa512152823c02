"""Small SVG charts in words of scales, axes and marks; colours are classes of the page's style.

Marks carry the place of their values in the table beside the chart (`data-r`, `data-c`), so that
the page can show them; texts are escaped wherever they stand.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import east_asian_width

from markupsafe import Markup

from fedpn.core.plain import plain

WIDTH = 420  # of every chart, in its own units: it is scaled to its place
LETTER = 6.4  # how wide a letter is, about
LONGEST = 24  # letters of a name
Tick = tuple[float, str]
Point = tuple[float, float]


def tag(name: str, *inside: str, **attributes: float | str) -> Markup:
    """An element; `class_` and `data_r` are the attributes `class` and `data-r`.

    >>> tag("text", "a < b", x=1.25, class_="name")
    Markup('<text x="1.2" class="name">a &lt; b</text>')
    """
    told = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short_number(value))
        for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, told, Markup("").join(inside))


def _short_number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


class Scale(NamedTuple):
    """From values to places on a chart."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """
        >>> Scale(0, 10, 100, 0)(2.5)
        75.0
        """
        width = (self.high - self.low) or 1.0
        return self.start + (value - self.low) / width * (self.end - self.start)

    def ticks(self, most: int = 6, whole: bool = False) -> list[Tick]:
        """Round values from low to high, at most so many.

        >>> [text for _, text in Scale(0, 1, 0, 1).ticks()]
        ['0', '0.2', '0.4', '0.6', '0.8', '1']
        """
        step = _round_step((self.high - self.low) / most, whole)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        if last - first > 2 * most:  # floats no longer tell such values apart
            return [(self.low, f"{self.low:g}")]
        return [(i * step, f"{i * step:.6g}") for i in range(first, last + 1)]


def _round_step(least: float, whole: bool) -> float:
    """The smallest of 1, 2, 5, 10, … that is not below.

    >>> _round_step(0.13, False), _round_step(0.13, True), _round_step(14, True)
    (0.2, 1.0, 20.0)
    """
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))
    return max(step, 1.0) if whole else step


class Frame(NamedTuple):
    """Where a chart's values are, inside its margins."""

    height: float = 250
    left: float = 48
    bottom: float = 38
    top: float = 10
    right: float = 14
    width: float = WIDTH

    def across(self, low: float, high: float) -> Scale:
        return Scale(low, high, self.left, self.width - self.right)

    def up(self, low: float, high: float) -> Scale:
        return Scale(low, high, self.height - self.bottom, self.top)


def axes(
    frame: Frame, x: Scale, y: Scale, names: tuple[str, str], whole: bool = False
) -> list[Markup]:
    """Grid, ticks and names of two scales of numbers."""
    return [
        *below(frame, ((x(v), text) for v, text in x.ticks(whole=whole)), names[0]),
        *beside(frame, ((y(v), text) for v, text in y.ticks(5)), names[1]),
    ]


def below(
    frame: Frame, ticks: Iterable[Tick], name: str = "", slanted: bool = False
) -> list[Markup]:
    """Ticks along the bottom, with lines of the grid."""
    bottom, drawn = frame.height - frame.bottom, []
    for x, text in ticks:
        drawn.append(tag("line", class_="grid", x1=x, x2=x, y1=frame.top, y2=bottom))
        if slanted:
            turn = f"translate({x + 4:.0f} {bottom + 10:.0f}) rotate(-45)"
            drawn.append(tag("text", text, text_anchor="end", transform=turn))
        else:
            drawn.append(tag("text", text, text_anchor="middle", x=x, y=bottom + 15))
    middle = (frame.left + frame.width - frame.right) / 2
    return [*drawn, tag("text", name, class_="axis", x=middle, y=frame.height - 4)]


def beside(frame: Frame, ticks: Iterable[Tick], name: str = "") -> list[Markup]:
    """Ticks up the left side, with lines of the grid."""
    end, drawn = frame.width - frame.right, []
    for y, text in ticks:
        drawn.append(tag("line", class_="grid", x1=frame.left, x2=end, y1=y, y2=y))
        drawn.append(tag("text", text, text_anchor="end", x=frame.left - 6, y=y + 4))
    if name:
        middle = (frame.top + frame.height - frame.bottom) / 2
        turn = f"translate(12 {middle:.0f}) rotate(-90)"
        drawn.append(tag("text", name, class_="axis", transform=turn))
    return drawn


def polyline(points: Iterable[Point], kind: str) -> Markup:
    """A line; a single point is a dot, for a line through it would not be seen."""
    places = list(points)
    if len(places) == 1:
        return tag("circle", class_=f"fill {kind}", cx=places[0][0], cy=places[0][1], r=3.0)
    return tag("polyline", class_=f"line {kind}", points=_path(places))


def _path(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def inside(points: Sequence[Point], top: float) -> list[list[Point]]:
    """The parts of a curve that are not above a height, each cut where it crosses it.

    >>> inside([(0, 0.0), (1, 4.0), (2, 0.0)], 2)
    [[(0, 0.0), (0.5, 2)], [(1.5, 2), (2, 0.0)]]
    """
    parts: list[list[Point]] = []
    for i, (x, y) in enumerate(points):
        before = points[i - 1] if i else None
        crossing = []
        if before and (before[1] > top) != (y > top):
            share = (top - before[1]) / (y - before[1])
            crossing = [(before[0] + share * (x - before[0]), top)]
        if y <= top and (before is None or before[1] > top):
            parts.append([])
        if parts and (crossing or y <= top):
            parts[-1] += [*crossing, *([(x, y)] if y <= top else [])]
    return parts


def bands(frame: Frame, places: Sequence[float]) -> list[Markup]:
    """Unseen marks, one around each place along the bottom: what the pointer meets."""
    edges = [(a + b) / 2 for a, b in pairwise(places)]
    edges = [frame.left, *edges, frame.width - frame.right]
    high = frame.height - frame.bottom - frame.top
    return [
        tag("rect", class_="hit", data_r=str(r), x=a, y=frame.top, width=max(b - a, 1), height=high)
        for r, (a, b) in enumerate(pairwise(edges))
    ]


def drawing(frame: Frame, marks: Iterable[Markup], told: str) -> Markup:
    """The chart; `told` is what it shows, for those who do not see it."""
    box = f"0 0 {frame.width:.0f} {frame.height:.0f}"
    return tag("svg", *marks, viewBox=box, role="img", aria_label=told)


def short(name: str) -> str:
    """
    >>> short("a" * 30)
    'aaaaaaaaaaaaaaaaaaaaaaa…'
    """
    name = plain(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def room(names: Iterable[str]) -> float:
    """How wide the widest of some names is, as it is shown."""
    wide = [sum(1 + (east_asian_width(c) in "WF") for c in short(name)) for name in names]
    return LETTER * max(wide, default=0)
