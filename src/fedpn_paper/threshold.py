"""Accuracy of local, global and switch over the quantile from which a client delegates."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpn.core.summary import SETS
from fedpn.data.dataset import Array
from fedpn.federated.listener import Listener
from fedpn.reporting.plots import INK
from fedpn.routing.routers import Score
from fedpn_paper.figure import (
    SET_COLOURS,
    SET_NAMES,
    Result,
    Settings,
    average,
    page,
    plural,
)
from fedpn_paper.grid import title_of
from fedpn_paper.opened import Opened, over
from fedpn_paper.scenes import limits, rate, references, scenes, separation, switch_accuracy
from fedpn_paper.score_names import router_named

TITLE = (
    "Between the quantiles 0.8 and 0.9 the switch is near its best, which is little above global"
)
DATASETS = ("mnist", "fashionmnist", "organamnist")
SCORES = {"log_density": "log density", "entropy": "Dirichlet entropy"}
CORRIDOR = (0.8, 0.9)
QUANTILES = torch.arange(0, 51, dtype=torch.float64) / 50


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Measures every federation over the quantiles."""
    wanted = ("digits",) if settings.quick else DATASETS
    return over(wanted, out, settings, listener, measure) | {"quantiles": QUANTILES}


def measure(opened: Opened) -> Result:
    """Client-wise means: references, and for each score AUROC and accuracies of the switch."""
    clients = []
    for scene in scenes(opened):
        tree: Result = {"reference": references(scene), "auroc": {}, "switch": {}}
        for name in SCORES:
            scored = rate(scene, Score(router_named(name)))
            accuracy = switch_accuracy(scene, scored.test, limits(scored.calibration, QUANTILES))
            tree["auroc"][name] = separation(scene, scored.test)
            tree["switch"][name] = {s: t.tolist() for s, t in accuracy.items()}
        clients.append(tree)
    return average(clients)


def draw(result: Result) -> Figure:
    """A column for each set, a row for each score."""
    data = result["data"]
    notes = "; ".join(f"{title_of(d['name'])}: {d['note']}" for d in data if d["note"])
    foot = (
        "solid: switch, dotted: global model, dashed: local model (on OOD rows it is never right); "
        f"shaded: the corridor; client-wise means, {plural(result['seeds'], 'seed')}. {notes}"
    )
    figure = page(result["title"], max(3.7 * len(data), 7), 6.6, foot)
    grid = figure.subplots(len(SCORES), len(data), squeeze=False, sharex=True, sharey="col")
    for row, (score, label) in zip(grid, SCORES.items(), strict=True):
        for ax, about in zip(row, data, strict=True):
            _panel(ax, result, about["name"], score)
            ax.set_title(f"{title_of(about['name'])}, {label}")
        row[0].set_ylabel("accuracy (%)")
    for ax in grid[-1]:
        ax.set_xlabel("quantile of the calibration scores")
    grid[0][0].legend(loc="lower left", ncols=3, fontsize=8)
    return figure


def _panel(ax: Axes, result: Result, dataset: str, score: str) -> None:
    curves, x = result["sets"][dataset], result["quantiles"]
    ax.axvspan(CORRIDOR[0], CORRIDOR[1], color=INK, alpha=0.08, linewidth=0)
    for s in SETS:
        look: dict[str, Any] = {"color": SET_COLOURS[s]}
        ax.plot(x, 100 * np.array(curves["switch"][score][s]), label=SET_NAMES[s], lw=1.8, **look)
        ax.axhline(100 * curves["reference"]["global"][s], linestyle=":", lw=1.2, **look)
    local = 100 * curves["reference"]["local"]["ind"]
    ax.axhline(local, linestyle="--", lw=1.2, color=SET_COLOURS["ind"])
    inside = [
        100 * curves["switch"][name][s][int(0.9 * (len(x) - 1))] for name in SCORES for s in SETS
    ]
    low = min([*inside, *(100 * v for v in curves["reference"]["global"].values())])
    high = max(local, *(100 * v for v in curves["reference"]["global"].values()))
    ax.set(ylim=(max(low - 0.4 * (high - low) - 1, -1), high + 0.1 * (high - low)), xlim=(0, 1))


def say(result: Result) -> str:
    """What the corridor costs on Mix, against the best quantile and against the global model."""
    inside = in_corridor(result)
    lost, gains = [], []
    for curves in result["sets"].values():
        for score in SCORES:
            mix = 100 * np.array(curves["switch"][score]["mix"])
            lost.append(mix.max() - mix[inside].min())
            gains.append(mix.max() - 100 * curves["reference"]["global"]["mix"])
    x = np.array(result["quantiles"])
    sets = " ".join(_told(name, curves, x, inside) for name, curves in result["sets"].items())
    left = f" Not at hand: {', '.join(result['missing'])}." if result["missing"] else ""
    return (
        f"{sets} Anywhere in the corridor the switch stays within {max(lost):.1f} points of its "
        "best quantile on Mix, which nobody could have known beforehand. At that quantile it gains "
        f"{min(gains):.1f} to {max(gains):.1f} points over the global model alone.{left}"
    )


def in_corridor(result: Result) -> Array:
    """Tells for each quantile whether it lies in the paper's corridor."""
    x = np.array(result["quantiles"])
    inside: Array = (x >= CORRIDOR[0] - 1e-9) & (x <= CORRIDOR[1] + 1e-9)
    return inside


def _told(name: str, curves: Result, x: Array, inside: Array) -> str:
    """The Mix accuracies of one set."""
    told = []
    for score, label in SCORES.items():
        mix = 100 * np.array(curves["switch"][score]["mix"])
        told.append(
            f"by {label} {mix[inside].min():.1f} to {mix[inside].max():.1f} % in the corridor and "
            f"at best {mix.max():.1f} % at {x[mix.argmax()]:.2f} "
            f"(AUROC {curves['auroc'][score]:.3f})"
        )
    mixes = {who: 100 * row["mix"] for who, row in curves["reference"].items()}
    return (
        f"{title_of(name)}: Mix accuracy of the switch is {'; '.join(told)}; the global model has "
        f"{mixes['global']:.1f} %, the local ones {mixes['local']:.1f} %, the oracle "
        f"{mixes['oracle']:.1f} %."
    )
