"""A sweep as a picture: a line over one number, a map over two settings, bars otherwise."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter, NullLocator

from fedpn.core.plain import plain
from fedpn.core.summary import standard_error
from fedpn.reporting.pictures import BLUE, GREY, ORANGE, Picture
from fedpn.reporting.plots import INK

DECADE = 10  # values that span this are drawn on a logarithmic axis
MOST_BARS = 30
RED = "#D55E00"  # Okabe and Ito's, seen on every shade of the map
LONGEST = 42  # characters of a name


class Point(NamedTuple):
    """A setting, and what came of it."""

    choice: dict[str, Any]
    values: list[float]  # accuracy in %, a seed each

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        return standard_error(self.values)


def picture(keys: Sequence[str], points: Sequence[Point], measure: str) -> Picture:
    """Draws points, the best of which comes first; `measure` says what their values are."""
    if len(keys) == 1 and len(points) > 1 and _are_numbers([p.choice[keys[0]] for p in points]):
        return _line(keys[0], points, measure)
    whole = all(key in point.choice for point in points for key in keys)
    if len(keys) == 2 and whole and len(points) > 2:
        return _map(keys[0], keys[1], points, measure)
    return _bars(points, measure)


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _line(key: str, points: Sequence[Point], measure: str) -> Picture:
    """Mean ± standard error over the values of one number; each seed is a dot."""
    ordered = sorted(points, key=lambda point: point.choice[key])
    x = [float(point.choice[key]) for point in ordered]

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        for place, point in zip(x, ordered, strict=True):
            dots = [place] * len(point.values)
            ax.scatter(dots, point.values, s=14, color=GREY, alpha=0.7, linewidths=0, zorder=2)
        means, errors = [p.mean for p in ordered], [p.error for p in ordered]
        ax.errorbar(x, means, errors, color=BLUE, marker="o", elinewidth=1, capsize=4, zorder=3)
        best = points[0]
        ring = {"s": 150, "facecolors": "none", "edgecolors": ORANGE, "linewidths": 2.2}
        ax.scatter([float(best.choice[key])], [best.mean], zorder=4, **ring)  # type: ignore[arg-type]
        ax.margins(x=0.08, y=0.1)
        _scale(ax, x)
        ax.set(xlabel=plain(key), ylabel=measure, title=_caption(points))

    return Picture(fill, 6.4, 4.0)


def _scale(ax: Axes, x: Sequence[float]) -> None:
    """A logarithmic axis where values span decades; the values themselves are its ticks."""
    positive = [value for value in x if value > 0]
    if min(x) >= 0 and len(positive) > 1 and max(positive) / min(positive) >= DECADE:
        if min(x) > 0:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=min(positive), linscale=0.7)
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(axis="x", labelrotation=45 if len(x) > 8 else 0)


def _caption(points: Sequence[Point]) -> str:
    seeds = _seeds(points)
    if seeds == 1:
        return "the ring is the best; one seed"
    return f"dots are seeds, bars ± standard error over {seeds}, the ring is the best"


def _spread(points: Sequence[Point]) -> str:
    seeds = _seeds(points)
    return f"; ± is the standard error over {seeds} seeds" if seeds > 1 else "; one seed"


def _means(points: Sequence[Point]) -> str:
    seeds = _seeds(points)
    return f"; means over {seeds} seeds" if seeds > 1 else "; one seed"


def _seeds(points: Sequence[Point]) -> int:
    return max(len(point.values) for point in points)


def _map(down: str, across: str, points: Sequence[Point], measure: str) -> Picture:
    """The mean for each pair of values; the best has a frame."""
    rows, columns = ([*_ordered([p.choice[key] for p in points])] for key in (down, across))
    table = np.full((len(rows), len(columns)), np.nan)
    for point in points:
        table[_place(point, down, rows), _place(point, across, columns)] = point.mean

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        image = ax.imshow(table, cmap="cividis", aspect="auto")
        low, high = np.nanmin(table), np.nanmax(table)
        for (i, j), value in np.ndenumerate(table):
            text = "–" if np.isnan(value) else f"{value:.1f}"
            is_light = not np.isnan(value) and value > low + 0.45 * (high - low)
            ax.text(j, i, text, ha="center", va="center", color="black" if is_light else "white")
        best = (_place(points[0], across, columns), _place(points[0], down, rows))
        corner = (best[0] - 0.48, best[1] - 0.48)
        ax.add_patch(Rectangle(corner, 0.96, 0.96, fill=False, edgecolor=RED, linewidth=3))
        ax.set_xticks(range(len(columns)), [_short(value, 14) for value in columns])
        ax.set_yticks(range(len(rows)), [_short(value, 22) for value in rows])
        if max(len(_short(value, 14)) for value in columns) > 6:
            ax.tick_params(axis="x", labelrotation=30)
        ax.set(
            xlabel=plain(across), ylabel=plain(down), title=f"the frame is the best{_means(points)}"
        )
        ax.grid(visible=False)
        bar = ax.figure.colorbar(image, ax=ax)
        bar.set_label(measure)

    width, height = 3.2 + 0.85 * len(columns), 1.8 + 0.5 * len(rows)
    return Picture(fill, min(max(width, 5.0), 14), min(max(height, 3.2), 14))


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Values once each: numbers by size, others as they came.

    >>> _ordered([3, 1, 3]), _ordered(["b", "a"])
    ([1, 3], ['b', 'a'])
    """
    once: list[Any] = []
    for value in values:
        if value not in once:
            once.append(value)
    return sorted(once) if _are_numbers(once) else once


def _place(point: Point, key: str, values: list[Any]) -> int:
    return values.index(point.choice[key])


def _bars(points: Sequence[Point], measure: str) -> Picture:
    """A bar for each setting, the best on top."""
    shown = points[:MOST_BARS]

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        y = np.arange(len(shown))
        means, errors = [p.mean for p in shown], [p.error for p in shown]
        colours = [ORANGE, *([BLUE] * (len(shown) - 1))]
        ax.barh(y, means, 0.66, color=colours, xerr=errors, ecolor=INK, capsize=3)
        for place, mean, error in zip(y, means, errors, strict=True):
            told = f"{mean:.1f} ± {error:.1f}" if error else f"{mean:.1f}"
            ax.annotate(
                told, (mean + error, place), (6, 0), textcoords="offset points", va="center"
            )
        ax.set_yticks(y, [_name(point.choice) for point in shown])
        left_out = f", the first {MOST_BARS} of {len(points)}" if len(points) > MOST_BARS else ""
        ax.set(xlabel=measure, title=f"the best on top{left_out}{_spread(shown)}")
        ax.set(ylim=(len(shown) - 0.4, -0.6), xlim=(0, 1.24 * max(*means, 1e-9)))
        ax.grid(visible=False, axis="y")

    longest = max(len(_name(point.choice)) for point in shown)
    return Picture(fill, 5.4 + 0.075 * longest, 1.3 + 0.36 * len(shown))


def _name(choice: dict[str, Any]) -> str:
    """A value alone where there is one setting, else each with the last part of its key."""
    if len(choice) == 1:
        return _short(next(iter(choice.values())), LONGEST)
    words = [
        str(value) if key == "algorithm" else f"{key.rpartition('.')[2]}={value}"
        for key, value in choice.items()
    ]
    return _short(", ".join(words), LONGEST)


def _short(value: Any, most: int) -> str:
    text = plain(f"{value:g}" if isinstance(value, float) else str(value))
    return text if len(text) <= most else f"{text[: most - 1]}…"
