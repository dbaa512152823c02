"""What an experiment is: a computation, its picture, and what one sees in it."""

import io
import math
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from textwrap import fill
from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from fedpn.federated.listener import Listener
from fedpn.reporting.plots import STYLE

Result = dict[str, Any]
KINDS = {"clean": "#3b82c4", "noisy": "#e08a1e"}
LOSS_COLOURS = {"bayesian": "#c8553d", "repaired": "#1f9e74"}
LOSS_NAMES = {"bayesian": "original loss (eq. 6)", "repaired": "repaired loss (eq. 8)"}
SET_COLOURS = {"ind": "#3b82c4", "ood": "#e08a1e", "mix": "#1f9e74"}
SET_NAMES = {"ind": "InD", "ood": "OOD", "mix": "Mix"}
DATA_COLOURS = ("#3b82c4", "#e08a1e", "#1f9e74", "#a078c8", "#c8553d")
SIGNIFICANT = 6  # digits of a number in a result


@dataclass(frozen=True)
class Settings:
    """How much of an experiment is played."""

    seeds: tuple[int, ...] = (0,)
    rounds: int | None = None  # of federations; None: those of the paper
    quick: bool = False  # small, to see that it works
    home: Path | None = None  # whose `runs` holds federations; None: the experiment's own place

    def told(self) -> Result:
        """What a result says of them; where runs lie changes nothing."""
        told = {name: value for name, value in asdict(self).items() if name != "home"}
        return told | {"seeds": list(self.seeds)}


class Experiment(Protocol):
    """A module of this package."""

    TITLE: str  # the sentence that the figure shows

    def run(self, out: Path, settings: Settings, listener: Listener) -> Result:
        """Computes; what takes long is kept below `out`, and goes on from there."""

    def draw(self, result: Result) -> Figure:
        """Draws the result."""

    def say(self, result: Result) -> str:
        """Tells in a paragraph what one sees, whether it supports the paper or not."""


def style() -> AbstractContextManager[None]:
    """The look of all figures: drawing and saving belong inside."""
    return mpl.rc_context(STYLE | {"axes.titlesize": 10})  # type: ignore[arg-type]


def page(title: str, width: float, height: float, foot: str = "") -> Figure:
    """A figure with its sentence above and its settings below."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(fill(title, int(width * 12)), x=0.01, ha="left", fontsize=12)
    if foot:
        figure.supxlabel(fill(foot, int(width * 16)), x=0.01, ha="left", fontsize=8)
    return figure


def legend_below(ax: Axes, columns: int, size: float = 9) -> None:
    """A legend under the name of the axis, where it hides nothing."""
    figure = ax.get_figure()
    assert figure is not None
    below = ax.transAxes + ScaledTranslation(0, -0.48, figure.dpi_scale_trans)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0)}
    ax.legend(ncols=columns, fontsize=size, bbox_transform=below, **place)


def to_png(figure: Figure) -> bytes:
    """Writes a figure for print, on white."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120, facecolor="white", metadata={"Software": None})
    return content.getvalue()


def tidy(value: Any) -> Any:
    """Plain values of few digits, for JSON; what is not finite becomes null.

    >>> tidy({"a": np.float64(1 / 3), "b": [1, float("inf")]})
    {'a': 0.333333, 'b': [1, None]}
    """
    if isinstance(value, dict):
        return {str(key): tidy(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(v) for v in value]
    if hasattr(value, "tolist"):
        return tidy(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}") if math.isfinite(value) else None
    return value


def histogram(groups: dict[str, Any], bins: int = 60, cut: float = 0.005) -> Result:
    """Normalised histograms over common bins; the ends hold what lies beyond them.

    >>> histogram({"a": np.array([0.0, 1.0]), "b": np.array([1.0])}, bins=2, cut=0)
    {'edges': [0.0, 0.5, 1.0], 'a': [0.5, 0.5], 'b': [0.0, 1.0]}
    """
    pooled = np.concatenate([np.asarray(v, dtype=float) for v in groups.values()])
    low, high = np.quantile(pooled, [cut, 1 - cut])
    edges = np.linspace(low, max(high, low + 1e-9), bins + 1)
    shares = {
        name: (np.histogram(np.clip(v, edges[0], edges[-1]), edges)[0] / max(len(v), 1)).tolist()
        for name, v in groups.items()
    }
    return {"edges": edges.tolist()} | shares


def kinds(ax: Axes, bins: Result) -> None:
    """Draws the histograms of rows with clean and with noisy labels."""
    for name, label in {"clean": "classes 0-4, clean", "noisy": "classes 5-9, noisy"}.items():
        look: dict[str, Any] = {"fill": True, "alpha": 0.55, "color": KINDS[name]}
        ax.stairs(bins[name], bins["edges"], label=label, **look)


def mean_of(seeds: Sequence[Result], *path: str) -> float:
    """The mean over seeds of a number inside their results.

    >>> mean_of([{"a": {"b": 1}}, {"a": {"b": 3}}], "a", "b")
    2.0
    """
    return float(np.mean([reduce(getitem, path, seed) for seed in seeds]))


def average(trees: list[Result]) -> Result:
    """The mean over clients or seeds, entry by entry; numbers, lists and trees of them.

    >>> average([{"a": 1.0, "b": {"c": [0, 2]}}, {"a": 3.0, "b": {"c": [2, 2]}}])
    {'a': 2.0, 'b': {'c': [1.0, 2.0]}}
    """
    return {
        key: average([tree[key] for tree in trees])
        if isinstance(value, dict)
        else np.mean([np.asarray(tree[key], dtype=float) for tree in trees], axis=0).tolist()
        for key, value in trees[0].items()
    }


def typeset(text: str) -> str:
    """Numbers below zero get a minus instead of a hyphen.

    >>> typeset("labels 5-9: -0.3 to 2")
    'labels 5-9: −0.3 to 2'
    """
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def plural(count: int, word: str) -> str:
    """
    >>> plural(1, "seed"), plural(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{count} {word}{'s' * (count != 1)}"
