"""The report's figures, as SVG that takes its ink from the page."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedpn.core.plain import plain
from fedpn.reporting.finished import Histogram, Reliability, Round
from fedpn.routing.outcomes import OUTCOMES

INK = "#111111"  # replaced by the page's own colour, so that figures read on a dark screen
OTHER = "#7d8794"  # of ways of answering, or outcomes, that have no colour here
COLOURS = {
    "local": "#3b82c4",
    "personal": "#3b82c4",
    "global": "#e08a1e",
    "switch": "#1f9e74",
    "oracle": "#a078c8",
    "bayes": "#c2477f",
}
OUTCOME_COLOURS = {
    "local_confident": "#1f9e74",
    "local_ambiguous": "#e3c23c",
    "local_ood": "#3b82c4",
    "global_uncertain": "#c8553d",
    "stranger": "#8a6fb0",
}
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedpn",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
# Names of classes and clients may contain $; no text of a report is a formula.
NO_FORMULAS = {"text.parse_math": False, "text.usetex": False}
SET_TITLES = {"ind": "own classes (InD)", "ood": "foreign classes (OOD)"}
# Inches: half the page, or all of it. Text has one size where figures have one scale.
HALF, FULL = 4.8, 10.4
MOST_CLASSES, MOST_CLIENTS = 40, 20  # that are named beside an axis


def colour_of(who: str) -> str:
    """The colour of a way of answering.

    >>> colour_of("switch"), colour_of("something new")
    ('#1f9e74', '#7d8794')
    """
    return COLOURS.get(who, OTHER)


def outcome_colour(label: str) -> str:
    return OUTCOME_COLOURS.get(label, OTHER)


def outcome_words(label: str) -> str:
    """
    >>> outcome_words("local_ood")
    'local OOD'
    """
    return " ".join("OOD" if word == "ood" else word for word in label.split("_"))


def svg(fill: Callable[[list[Axes]], None], width: float, height: float, panels: int = 1) -> str:
    """Makes a figure of one panel or several, side by side, and has them filled."""
    with mpl.rc_context(STYLE | NO_FORMULAS), warnings.catch_warnings():  # type: ignore[arg-type]
        # The browser draws the text, and has characters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
        figure = Figure(figsize=(width, height))
        fill(list(figure.subplots(1, panels, squeeze=False)[0]))
        return to_svg(figure)


def to_svg(figure: Figure) -> str:
    """Writes a figure as SVG without a background, its ink the page's own."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    # Within tags alone: a class may be named #111111.
    return re.sub(r"<[^>]*>", _with_page_ink, text[text.index("<svg") :])


def _with_page_ink(tag: re.Match[str]) -> str:
    return tag.group().replace(INK, "currentColor")


def curves(history: Sequence[Round]) -> str:
    """Training loss and the global model's accuracy over the rounds."""
    losses = [(r.number, r.loss) for r in history if r.loss is not None]
    accuracies = [(r.number, r.accuracy) for r in history if r.accuracy is not None]

    def fill(axes: list[Axes]) -> None:
        left, right = axes
        _line(left, losses, COLOURS["switch"])
        left.set(xlabel="round", ylabel="mean training loss")
        _line(right, accuracies, COLOURS["global"])
        right.set(xlabel="round", ylabel="global accuracy", ylim=(0, 1))
        for ax in axes:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg(fill, FULL, 2.9, panels=2)


def _line(ax: Axes, points: Sequence[tuple[int, float]], colour: str) -> None:
    x, y = [x for x, _ in points], [y for _, y in points]
    # A single round is a dot: a line through one point is not seen.
    ax.plot(x, y, color=colour, marker="o" if len(points) == 1 else "")


def ownership(
    counts: Sequence[Sequence[int]], classes: Sequence[str], clients: Sequence[str]
) -> str:
    """Who owns what: a bubble for each client and class."""
    names = [_short(name) for name in classes]
    longest = max(map(len, names))
    is_slanted = longest > 3

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        table = np.array(counts)
        client, class_ = np.nonzero(table)
        sizes = table[client, class_] / max(table.max(), 1)
        colour = COLOURS["local"]
        ax.scatter(class_, client, s=160 * sizes, color=colour, alpha=0.85, linewidths=0)
        shown = _some(len(names), MOST_CLASSES)
        slant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(shown, [names[i] for i in shown], **(slant if is_slanted else {}))
        ax.set(xlabel="class")
        _name_clients(ax, clients)

    room_for_names = 0.06 * longest if is_slanted else 0.0
    return svg(fill, HALF, min(1.3 + 0.24 * len(counts) + room_for_names, 9))


def histogram(scores: Histogram) -> str:
    """The switch score of known and unknown rows, beside the threshold."""

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        for shares, who, name in ((scores.ind, "local", "ind"), (scores.ood, "global", "ood")):
            if any(shares):
                colour, label = COLOURS[who], SET_TITLES[name]
                ax.stairs(shares, scores.edges, fill=True, alpha=0.6, color=colour, label=label)
        ax.axvline(0, color=INK, linestyle="--", linewidth=1)
        ax.annotate(" delegated →", (0, 1.01), xycoords=("data", "axes fraction"))
        ax.set(xlabel="score above the client's threshold", ylabel="share of rows")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left")

    return svg(fill, HALF, 3.4)


def outcomes(shares: dict[str, list[list[float]]], clients: Sequence[str]) -> str | None:
    """The outcomes of each client, for known and for unknown rows; None where there is no row."""
    known = {name: title for name, title in SET_TITLES.items() if np.any(shares[name])}
    if not known:
        return None

    def fill(axes: list[Axes]) -> None:
        for ax, (name, title) in zip(axes, known.items(), strict=True):
            table, left = np.array(shares[name]), np.zeros(len(clients))
            for share, outcome in zip(table.T, OUTCOMES, strict=True):
                colour, label = outcome_colour(outcome), outcome_words(outcome)
                ax.barh(np.arange(len(table)), share, 0.8, left, color=colour, label=label)
                left = left + share
            ax.set(title=title, xlabel="share of rows", xlim=(0, 1))
            ax.grid(visible=False)
            _name_clients(ax, clients)
        for ax in axes[1:]:
            ax.set_ylabel("")
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, ncols=len(OUTCOMES), loc="outside lower center")

    return svg(fill, FULL, min(1.7 + 0.2 * len(clients), 9), panels=len(known))


def confusion(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """What rows of each class are taken for, as shares of them."""
    names = [_short(name) for name in classes]

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        table = np.array(counts, dtype=float)
        share = table / np.maximum(table.sum(1, keepdims=True), 1)
        sizes = share.flatten()
        truth, said = np.divmod(np.arange(len(sizes)), len(names))
        colours = np.where(truth == said, COLOURS["switch"], OUTCOME_COLOURS["global_uncertain"])
        ax.scatter(said, truth, s=160 * sizes, color=colours, alpha=0.85, linewidths=0)
        shown = _some(len(names), MOST_CLASSES)
        slant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(shown, [names[i] for i in shown], **slant)
        ax.set_yticks(shown, [names[i] for i in shown])
        ax.set(xlabel="answer", ylabel="true class", xlim=(-0.5, len(names) - 0.5))
        ax.set_ylim(len(names) - 0.5, -0.5)

    return svg(fill, HALF, min(1.6 + 0.26 * len(names) + 0.06 * max(map(len, names)), 7))


def reliability(bins: Reliability) -> str:
    """How often answers of some confidence are right."""

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        share = np.array(bins.share)
        shown = share > 0
        x, y = np.array(bins.confidence)[shown], np.array(bins.accuracy)[shown]
        colour, sizes = COLOURS["switch"], 20 + 300 * share[shown]
        ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, label="perfect")
        ax.plot(x, y, color=colour, linewidth=1)
        ax.scatter(x, y, s=sizes, color=colour, alpha=0.8, linewidths=0)
        ax.plot([], [], color=colour, marker="o", linewidth=1, label="answers")
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.03), ylim=(0, 1.03))
        ax.legend(loc="best")

    return svg(fill, HALF, 3.4)


def risk_coverage(risks: dict[str, list[float]]) -> str:
    """The errors among the most certain answers."""

    def fill(axes: list[Axes]) -> None:
        (ax,) = axes
        for who, risk in risks.items():
            coverage = np.linspace(0, 1, len(risk))
            width = 2 if who == "switch" else 1.2
            ax.plot(coverage, risk, color=colour_of(who), label=_short(who), linewidth=width)
        ax.set(xlabel="coverage: share of rows answered, surest first", ylabel="risk: share wrong")
        ax.set(xlim=(0, 1), ylim=(0, None))
        if ax.get_legend_handles_labels()[0]:
            ax.legend()

    return svg(fill, HALF, 3.4)


def _name_clients(ax: Axes, names: Sequence[str]) -> None:
    """Names clients down the left side, the first on top; some of them where there are many."""
    shown = _some(len(names), MOST_CLIENTS)
    ax.set_yticks(shown, [_short(names[i]) for i in shown])
    ax.set(ylabel="client", ylim=(len(names) - 0.5, -0.5))


def _some(count: int, most: int) -> range:
    """
    >>> list(_some(3, most=20)), list(_some(10, most=4))
    ([0, 1, 2], [0, 3, 6, 9])
    """
    return range(0, count, -(-count // most))


def _short(name: str) -> str:
    name = plain(name)
    return name if len(name) < 25 else f"{name[:23]}…"
