"""The loss over the density for fixed answers (eqs. 5 and 7), and where its slope turns."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedpn.core.dirichlet import digamma_gap
from fedpn.federated.listener import Listener
from fedpn.reporting.plots import INK
from fedpn_paper.figure import Result, Settings, page

TITLE = (
    "Where the label is a guess the loss hardly cares for the density, "
    "and for outliers it pushes the density down"
)
CLASSES = 10
ANSWERS = (0.01, 0.05, 0.1, 0.2, 0.5, 0.9)  # f_y, the probability of the true label
FLAT = "#c8553d"


def exact(p: Tensor, f: Tensor, classes: int) -> Tensor:
    """UCE (eq. 5): ψ(K + p) − ψ(1 + p·f)."""
    return digamma_gap(1 + p * f, classes - 1 + p * (1 - f))


def exact_slope(p: Tensor, f: Tensor, classes: int) -> Tensor:
    """d UCE / d log p = p·[ψ′(K + p) − f·ψ′(1 + p·f)]."""
    trigamma = partial(torch.polygamma, 1)
    return p * (trigamma(classes + p) - f * trigamma(1 + p * f))


def rough(p: Tensor, f: Tensor, classes: int) -> Tensor:
    """The paper's approximation (eq. 7): log K + log[1 + p·(1/K − f) / (1 + p·f)]."""
    return math.log(classes) + torch.log1p(p * (1 / classes - f) / (1 + p * f))


def rough_slope(p: Tensor, f: Tensor, classes: int) -> Tensor:
    """d (eq. 7) / d log p = p / (K + p) − p·f / (1 + p·f): zero at f = 1/K, whatever p."""
    return p / (classes + p) - p * f / (1 + p * f)


def turning(p: Tensor, classes: int) -> Tensor:
    """The answer f at which the exact loss turns: below it, a lower density is a lower loss.

    The slope falls as f grows from 0 to 1/K, so halving finds its zero. For large p it is at
    1 / (2K − 1): there f·ψ′(1 + p·f) ≈ 1/p − 1/(2f·p²) and ψ′(K + p) ≈ 1/p − (K − ½)/p².
    """
    low, high = torch.zeros_like(p), torch.full_like(p, 1 / classes)
    for _ in range(60):
        middle = (low + high) / 2
        rising = exact_slope(p, middle, classes) > 0
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    return (low + high) / 2


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Computes the curves; nothing is drawn at random."""
    p = torch.logspace(-2, 4, 61 if settings.quick else 181, dtype=torch.float64)
    f = torch.tensor(ANSWERS, dtype=torch.float64)[:, None]
    measures = {
        "exact": exact(p, f, CLASSES),
        "approximation": rough(p, f, CLASSES),
        "exact_slope": exact_slope(p, f, CLASSES),
        "approximation_slope": rough_slope(p, f, CLASSES),
    }
    curves = {name: dict(zip(map(str, ANSWERS), t, strict=True)) for name, t in measures.items()}
    return {"data": [], "classes": CLASSES, "p": p, "turning": turning(p, CLASSES)} | curves


def draw(result: Result) -> Figure:
    """The loss, its slope, and the answer at which the slope turns; dashed: eq. 7."""
    foot = f"K = {result['classes']} classes; solid: exact (eq. 5), dashed: approximation (eq. 7)"
    figure = page(result["title"], 11.5, 4.2, foot)
    left, middle, right = figure.subplots(1, 3)
    _curves(left, result, "exact", "approximation")
    left.set(ylabel="loss: expected cross-entropy (nats)", title="loss", ylim=(0, 5.5))
    _curves(middle, result, "exact_slope", "approximation_slope")
    middle.axhline(0, color=INK, linewidth=1)
    middle.set(ylabel="slope: d loss / d log p (nats)", title="slope", ylim=(-0.75, 0.75))
    middle.text(0.013, 0.68, "training lowers the density", fontsize=8, va="top")
    middle.text(0.013, -0.70, "training raises the density", fontsize=8)
    left.legend(title="probability of the true label", ncols=2, fontsize=8, title_fontsize=8)
    _turning(right, result)
    return figure


def _curves(ax: Axes, result: Result, solid: str, dashed: str) -> None:
    shades = colormaps["viridis"](np.linspace(0.28, 0.85, len(ANSWERS)))
    for name, shade in zip(map(str, ANSWERS), shades, strict=True):
        flat = float(name) == 1 / result["classes"]
        look: dict[str, Any] = {"color": FLAT if flat else shade, "linewidth": 2.2 if flat else 1.4}
        label = f"{name} = 1/K" if flat else name
        ax.plot(result["p"], result[solid][name], label=label, **look)
        ax.plot(result["p"], result[dashed][name], linestyle=(0, (3, 2)), alpha=0.8, **look)
    ax.set(xscale="log", xlabel="density p(z), as evidence")


def _turning(ax: Axes, result: Result) -> None:
    p, turn, even = result["p"], np.array(result["turning"]), 1 / result["classes"]
    ax.fill_between(p, 0, turn, color=FLAT, alpha=0.18, linewidth=0)
    ax.plot(p, turn, color=FLAT, linewidth=2)
    ax.axhline(even, color=FLAT, linestyle=(0, (3, 2)))
    ax.text(0.013, even * 1.02, "1/K: where the approximation turns", fontsize=8, va="bottom")
    ax.text(0.5, 0.03, "outliers: training\nlowers the density", fontsize=8, ha="left")
    ax.set(xscale="log", xlabel="density p(z), as evidence", title="where the slope turns")
    ax.set(ylabel="probability of the true label", ylim=(0, 0.13))


def say(result: Result) -> str:
    """The flat line and the turning point, by their numbers."""
    even = result["exact"][str(1 / result["classes"])]
    sure = result["exact"]["0.9"]
    outlier = result["exact_slope"]["0.01"]
    turn, low = result["turning"], 1 / (2 * result["classes"] - 1)
    return (
        f"With K = {result['classes']} classes and the probability of the true label at 1/K, the "
        f"approximation (eq. 7) is exactly flat at log K = {math.log(result['classes']):.3f} nats. "
        f"The exact loss is not: it falls from {even[0]:.3f} to {even[-1]:.3f} nats as the density "
        f"grows, {even[0] - even[-1]:.2f} nats in all, against {sure[0] - sure[-1]:.2f} for a "
        "label of which the model is sure (0.9). So the loss rewards density in ambiguous "
        "regions weakly, and hardly at all once the density is high, rather than not at all. "
        f"For an outlier (0.01) its slope is positive everywhere, up to {max(outlier):.2f} nats "
        "per log p: training lowers the density there, as the paper says. But the slope does not "
        f"turn at 1/K = {1 / result['classes']:.3f}: the exact loss turns between {min(turn):.3f} "
        f"and {max(turn):.3f}, and at 1/(2K − 1) = {low:.3f} in the limit of high density, so that "
        "fewer rows are outliers than the approximation has it (it drops a term that is as large "
        "as what is left)."
    )
