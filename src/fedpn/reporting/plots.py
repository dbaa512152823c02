"""The report's figures, as SVG that takes its ink from the page."""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

INK = "#111111"  # replaced by the page's own colour, so that figures read on a dark screen
COLOURS = {
    "local": "#3b82c4",
    "personal": "#3b82c4",
    "global": "#e08a1e",
    "switch": "#1f9e74",
    "oracle": "#a078c8",
}
OUTCOME_COLOURS = {
    "local_confident": "#1f9e74",
    "local_ambiguous": "#e3c23c",
    "local_ood": "#3b82c4",
    "global_uncertain": "#c8553d",
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
SETS = {"ind": "own classes (InD)", "ood": "foreign classes (OOD)"}


def svg(draw: Callable[..., None], width: float, height: float, panels: int = 1) -> str:
    """Draws on one panel or several, side by side."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height))
        draw(*np.atleast_1d(figure.subplots(1, panels)))
        return to_svg(figure)


def to_svg(figure: Figure) -> str:
    """Writes a figure as SVG without a background, its ink the page's own."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    return text[text.index("<svg") :].replace(INK, "currentColor")


def curves(history: Sequence[dict[str, Any]]) -> str:
    """Training loss and the global model's accuracy over the rounds."""

    def draw(left: Axes, right: Axes) -> None:
        rounds = [h["round"] for h in history]
        left.plot(rounds, [h["loss"] for h in history], color=COLOURS["switch"])
        left.set(xlabel="round", ylabel="mean training loss")
        seen = [(h["round"], h["accuracy"]) for h in history if h["accuracy"] is not None]
        if seen:
            right.plot(*zip(*seen, strict=True), color=COLOURS["global"])
        right.set(xlabel="round", ylabel="global accuracy", ylim=(0, 1))
        for ax in (left, right):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg(draw, 10.4, 2.9, panels=2)


def ownership(
    counts: Sequence[Sequence[int]], classes: Sequence[str], clients: Sequence[str]
) -> str:
    """Who owns what: a bubble for each client and class."""

    def draw(ax: Axes) -> None:
        table = np.array(counts)
        client, kind = np.nonzero(table)
        sizes = table[client, kind] / max(table.max(), 1)
        ax.scatter(kind, client, s=160 * sizes, color=COLOURS["local"], alpha=0.85, linewidths=0)
        names = [_short(name) for name in classes]
        slant: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(names)), names, **(slant if max(map(len, names)) > 3 else {}))
        ax.set(xlabel="class")
        _name_clients(ax, clients)

    longest = max(map(len, classes)) if max(map(len, classes)) > 3 else 0
    return svg(draw, 4.6, min(1.3 + 0.24 * len(counts) + 0.06 * min(longest, 24), 9))


def histogram(edges: Sequence[float], ind: Sequence[float], ood: Sequence[float]) -> str:
    """The switch score of known and unknown rows, beside the threshold."""

    def draw(ax: Axes) -> None:
        for shares, who, name in ((ind, "local", "ind"), (ood, "global", "ood")):
            if any(shares):
                colour, label = COLOURS[who], SETS[name]
                ax.stairs(shares, edges, fill=True, alpha=0.6, color=colour, label=label)
        ax.axvline(0, color=INK, linestyle="--", linewidth=1)
        ax.annotate(" delegated →", (0, 1.01), xycoords=("data", "axes fraction"))
        ax.set(xlabel="score above the client's threshold", ylabel="share of rows")
        ax.legend(loc="upper left")

    return svg(draw, 5.2, 3.2)


def outcomes(shares: dict[str, Sequence[Sequence[float]]], clients: Sequence[str]) -> str:
    """The four outcomes of each client, for known and for unknown rows."""
    known = {name: title for name, title in SETS.items() if np.any(shares[name])}

    def draw(*axes: Axes) -> None:
        for ax, (name, title) in zip(axes, known.items(), strict=True):
            table, left = np.array(shares[name]), 0
            for share, (outcome, colour) in zip(table.T, OUTCOME_COLOURS.items(), strict=True):
                label = outcome.replace("_", " ").replace("ood", "OOD")
                ax.barh(np.arange(len(table)), share, 0.8, left, color=colour, label=label)
                left = left + share
            ax.set(title=title, xlabel="share of rows", xlim=(0, 1))
            ax.grid(visible=False)
            _name_clients(ax, clients)
        for ax in axes[1:]:
            ax.set_ylabel("")
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, ncols=4, loc="outside lower center")

    return svg(draw, 10.4, min(1.7 + 0.2 * len(shares["ind"]), 9), panels=len(known))


def _name_clients(ax: Axes, names: Sequence[str]) -> None:
    """Down the left side, the first on top; some of them where there are many."""
    shown = range(0, len(names), max(1, len(names) // 20))
    ax.set_yticks(shown, [_short(names[i]) for i in shown])
    ax.set(ylabel="client", ylim=(len(names) - 0.5, -0.5))


def _short(name: str) -> str:
    return name if len(name) < 25 else f"{name[:23]}…"


def reliability(
    share: Sequence[float], confidence: Sequence[float], accuracy: Sequence[float]
) -> str:
    """How often answers of some confidence are right."""

    def draw(ax: Axes) -> None:
        shown = np.array(share) > 0
        x, y, size = (np.array(v)[shown] for v in (confidence, accuracy, share))
        ax.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, label="perfect")
        ax.plot(x, y, color=COLOURS["switch"], linewidth=1)
        ax.scatter(x, y, s=20 + 300 * size, color=COLOURS["switch"], alpha=0.8, label="answers")
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.03), ylim=(0, 1.03))
        ax.legend(loc="upper left")

    return svg(draw, 4, 3.4)


def risk_coverage(risks: dict[str, Sequence[float]]) -> str:
    """The errors among the most certain answers."""

    def draw(ax: Axes) -> None:
        for who, risk in risks.items():
            coverage = np.linspace(0, 1, len(risk))
            ax.plot(coverage, risk, color=COLOURS[who], label=who, lw=2 if who == "switch" else 1.2)
        ax.set(xlabel="coverage: share of rows answered, surest first", ylabel="risk: share wrong")
        ax.set(xlim=(0, 1), ylim=(0, None))
        ax.legend()

    return svg(draw, 4.6, 3.4)
