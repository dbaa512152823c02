"""Methods side by side as a picture: a dot for each client, mean and interval beside them."""

from collections.abc import Sequence
from textwrap import fill as wrapped
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedpn.core.paired import mean_interval
from fedpn.core.plain import plain
from fedpn.core.summary import SETS
from fedpn.reporting.clients import Seen
from fedpn.reporting.pictures import SHADES, Picture
from fedpn.reporting.plots import INK

TITLES = {"ind": "own rows (InD)", "ood": "foreign rows (OOD)", "mix": "both (Mix)"}
TOP, BOTTOM, BELOW = -0.4, 0.16, 0.3  # of a method: its dots, and its mean
WIDEST = 28  # characters of a name in one line


class Dots(NamedTuple):
    """A method's accuracies on a set of rows, in %, by seed."""

    by_seed: dict[int, list[float]]

    def mean(self) -> float:
        return float(np.mean([np.mean(values) for values in self.by_seed.values()]))

    def interval(self) -> tuple[float, float] | None:
        """Over seeds; over clients, where there is one seed."""
        seeds = list(self.by_seed.values())
        units = [float(np.mean(values)) for values in seeds] if len(seeds) > 1 else seeds[0]
        return mean_interval(units)


def picture(seen: Sequence[Seen]) -> Picture:
    """Draws methods from the best, on top, a panel for each set of rows."""
    sets = [name for name in SETS if any(one.values(name) for one in seen)]
    seeds = sorted({seed for one in seen for seed in one.by_seed})
    names = [wrapped(plain(one.method.name), WIDEST) for one in seen]

    def fill(axes: list[Axes]) -> None:
        for ax, name in zip(axes, sets, strict=True):
            for row, one in enumerate(seen):
                values = one.values(name)
                if values:
                    by_seed = {s: [100 * v for v in found] for s, found in values.items()}
                    _method(ax, row, Dots(by_seed), seeds)
            ax.set(title=TITLES[name], xlabel="accuracy, %")
            ax.set_yticks(range(len(seen)), names)
            ax.set_ylim(len(seen) - 0.35, -0.5)
            ax.grid(visible=False, axis="y")
        _legend(axes[0], seeds)

    longest = max(len(line) for name in names for line in name.splitlines())
    width = 0.9 + 0.075 * longest + 3.1 * len(sets)
    lines = sum(max(1.0, 0.3 * len(name.splitlines())) for name in names)
    return Picture(fill, min(width, 16), 1.4 + 0.95 * lines, panels=len(sets))


def _method(ax: Axes, row: int, dots: Dots, seeds: Sequence[int]) -> None:
    """Clients as dots, a lane for each seed; below them mean and interval."""
    lane = (BOTTOM - TOP) / len(seeds)
    for seed, values in dots.by_seed.items():
        # By their place, not by chance: the same figures make the same picture.
        number = seeds.index(seed)
        around = lane * np.linspace(0.12, 0.88, len(values)) if len(values) > 1 else lane / 2
        y = np.full(len(values), row + TOP + lane * number) + around
        colour = SHADES[number % len(SHADES)]
        ax.scatter(values, y, s=16, color=colour, alpha=0.65, linewidths=0, zorder=2)
    mean, interval, below = dots.mean(), dots.interval(), row + BELOW
    if interval is not None:
        ends = np.clip(interval, 0, 100)  # there is no accuracy beyond
        ax.plot(ends, [below, below], color=INK, linewidth=1.6, zorder=3)
    ax.plot([mean], [below], color=INK, marker="D", markersize=5, zorder=4)
    ax.annotate(
        f"{mean:.1f}", (mean, below), (0, -6), textcoords="offset points", ha="center", va="top"
    )


def _legend(ax: Axes, seeds: Sequence[int]) -> None:
    dots = [
        Line2D([], [], color=SHADES[i % len(SHADES)], marker="o", linestyle="", label=f"seed {s}")
        for i, s in enumerate(seeds[: len(SHADES)])
    ]
    over = "over seeds" if len(seeds) > 1 else "over clients"
    mean = Line2D([], [], color=INK, marker="D", label=f"mean, 95 % interval {over}")
    handles = [*dots, mean]
    ax.figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4))
