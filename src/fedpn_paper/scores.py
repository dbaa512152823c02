"""Which uncertainty score routes best: everything that a client could know of a row."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.trees import Params
from fedpn.federated.listener import Listener
from fedpn.reporting.plots import INK
from fedpn.routing.opinion import Opinion
from fedpn.routing.routers import Router, make_router
from fedpn.routing.settings import RoutingSettings
from fedpn_paper.figure import (
    DATA_COLOURS,
    Result,
    Settings,
    average,
    legend_below,
    page,
    plural,
)
from fedpn_paper.grid import title_of
from fedpn_paper.opened import Opened, over
from fedpn_paper.scenes import limits, rate, references, scenes, separation, switch_accuracy
from fedpn_paper.score_names import router_named

TITLE = (
    "At 10 % outliers the global model's belief in foreign classes routes best; those of the "
    "density come next, and those of the softmax fall behind the global model alone"
)
DATASETS = ("mnist", "fashionmnist", "organamnist")
OUTLIERS = 0.1  # the share of its own rows that a client gives away, for every score and set
NEIGHBOURS = 10
NAMES = {
    "log_density": "log density",
    "entropy": "Dirichlet entropy",
    "mutual_information": "mutual information",
    "reverse_mutual_information": "reverse mutual information",
    "expected_pairwise_kl": "expected pairwise KL",
    "expected_entropy": "expected entropy (aleatoric)",
    "entropy_of_mean": "entropy of the mean (total)",
    "max_probability": "1 − largest mean probability",
    "msp": "1 − largest softmax",
    "energy": "energy of the logits",
    "gaussian": "Gaussians on embeddings",
    "foreign": "global belief in foreign classes",
    "neighbours": f"distance to neighbour {NEIGHBOURS}",
}


@dataclass(frozen=True)
class Neighbours(Router):
    """By the distance to the k-th nearest training row of the client (Sun et al., 2022)."""

    count: int = NEIGHBOURS

    def fit(self, local: Opinion, shared: Opinion, labels: Tensor) -> Params:
        return {"z": local.z}

    def score(self, local: Opinion, shared: Opinion, state: Params) -> Tensor:
        count = min(self.count, len(state["z"]))
        parts = [
            torch.cdist(part, state["z"]).kthvalue(count, dim=1).values
            for part in torch.split(local.z, 2048)
        ]
        return torch.cat(parts)


ROUTERS: dict[str, Router] = {
    name: Neighbours()
    if name == "neighbours"
    else make_router(RoutingSettings(router=router_named(name)))
    for name in NAMES
}


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Routes by every score, with one share of outliers for all."""
    wanted = ("digits",) if settings.quick else DATASETS
    found = over(wanted, out, settings, listener, measure)
    sets = {name: judged(tree) for name, tree in found["sets"].items()}
    return found | {"outliers": OUTLIERS, "sets": sets}


def measure(opened: Opened) -> Result:
    """Client-wise means: AUROC, and the switch's accuracy with the client's own threshold."""
    quantile = torch.tensor([1 - OUTLIERS])
    clients = []
    for scene in scenes(opened):
        tree: Result = {"reference": references(scene), "scores": {}}
        for name, router in ROUTERS.items():
            scored = rate(scene, router)
            cut = limits(scored.calibration, quantile)
            accuracy = switch_accuracy(scene, scored.test, cut)
            tree["scores"][name] = {"auroc": separation(scene, scored.test)} | {
                s: float(t[0]) for s, t in accuracy.items()
            }
        clients.append(tree)
    return average(clients)


def judged(tree: Result) -> Result:
    """Adds how much of the oracle's gain each score has: the gap closed, on Mix."""
    mix = {who: row["mix"] for who, row in tree["reference"].items()}
    for row in tree["scores"].values():
        row["gap_closed"] = metrics.gap_closed(
            mix["local"], mix["global"], row["mix"], mix["oracle"]
        )
    return tree


def ranked(result: Result, by: str) -> list[str]:
    """Names of scores, best first, by the mean over sets."""

    def mean(name: str) -> float:
        column = [tree["scores"][name][by] for tree in result["sets"].values()]
        there = [v for v in column if v is not None]
        return float(np.mean(there)) if there else 0.0

    return sorted(NAMES, key=mean, reverse=True)


def draw(result: Result) -> Figure:
    """A dot for each score and set: AUROC, Mix accuracy over the global model's, gap closed."""
    notes = "; ".join(f"{title_of(d['name'])}: {d['note']}" for d in result["data"] if d["note"])
    foot = (
        f"each client delegates {100 * result['outliers']:g} % of rows like its own, whatever the "
        f"score and the set; client-wise means, {plural(result['seeds'], 'seed')}; best AUROC "
        f"first. {notes}"
    )
    figure = page(result["title"], 11.5, 5.4, foot)
    names = ranked(result, "auroc")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    _dots(left, result, names, lambda tree, row: row["auroc"])
    left.set(xlabel="AUROC, foreign against own rows", title="telling own from foreign")
    left.axvline(0.5, color=INK, lw=1, ls="--")
    left.set_yticks(range(len(names)), [NAMES[name] for name in names])
    left.invert_yaxis()
    _dots(middle, result, names, _gain)
    middle.set(xlabel="Mix accuracy, switch − global (points)", title="gain over global")
    middle.axvline(0, color=INK, lw=1, ls="--")
    middle.set_xscale("symlog", linthresh=0.5)
    _dots(right, result, names, lambda tree, row: row["gap_closed"])
    right.set(xlabel="gap closed on Mix (1: as the oracle)", title="gap closed")
    right.axvline(0, color=INK, lw=1, ls="--")
    right.set_xscale("symlog", linthresh=0.1)
    for ax, ticks in ((middle, (-10, -1, 0, 1)), (right, (-1, -0.1, 0, 0.1, 1))):
        ax.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
        ax.margins(x=0.1)
    legend_below(middle, len(result["sets"]))
    return figure


def _gain(tree: Result, row: Result) -> float:
    return float(100 * (row["mix"] - tree["reference"]["global"]["mix"]))


def _dots(
    ax: Axes,
    result: Result,
    names: list[str],
    value: Callable[[Result, Result], float | None],
) -> None:
    for (dataset, tree), colour in zip(result["sets"].items(), DATA_COLOURS, strict=False):
        values = [value(tree, tree["scores"][name]) for name in names]
        places = [i for i, v in enumerate(values) if v is not None]
        there = [v for v in values if v is not None]
        ax.scatter(there, places, s=42, color=colour, label=title_of(dataset), zorder=3)


def say(result: Result) -> str:
    """The best and the worst score of every set, and how log density and entropy do."""
    parts = []
    for name, tree in result["sets"].items():
        rows, reference = tree["scores"], tree["reference"]
        by_gap = sorted(rows, key=lambda n: rows[n]["mix"], reverse=True)
        by_auroc = sorted(rows, key=lambda n: rows[n]["auroc"], reverse=True)
        best, worst = by_gap[0], by_gap[-1]
        parts.append(
            f"{title_of(name)}: the switch has the highest Mix accuracy by {NAMES[best]}, "
            f"{100 * rows[best]['mix']:.1f} % ({_gap(rows[best])}), and the lowest by "
            f"{NAMES[worst]}, {100 * rows[worst]['mix']:.1f} %; the paper's scores have "
            f"{100 * rows['log_density']['mix']:.1f} % ({_gap(rows['log_density'])}, log density) "
            f"and {100 * rows['entropy']['mix']:.1f} % ({_gap(rows['entropy'])}, Dirichlet "
            f"entropy); global {100 * reference['global']['mix']:.1f} %, oracle "
            f"{100 * reference['oracle']['mix']:.1f} %. Own and foreign rows are told apart best "
            f"by {NAMES[by_auroc[0]]}, AUROC {rows[by_auroc[0]]['auroc']:.3f}, and worst by "
            f"{NAMES[by_auroc[-1]]}, {rows[by_auroc[-1]]['auroc']:.3f}."
        )
    left = f" Not at hand: {', '.join(result['missing'])}." if result["missing"] else ""
    return (
        " ".join(parts) + f" All at one share of outliers, {100 * result['outliers']:g} %, which "
        "nobody tuned; on test rows, so that choosing by this figure would be choosing by them."
        + _most(result)
        + left
    )


def _most(result: Result) -> str:
    """The best gap closed, over all scores and sets."""
    rows = [row for tree in result["sets"].values() for row in tree["scores"].values()]
    closed = [row["gap_closed"] for row in rows if row["gap_closed"] is not None]
    if not closed:
        return ""
    return f" The most that any score closes of the gap to the oracle is {max(closed):.2f}."


def _gap(row: Result) -> str:
    gap = row["gap_closed"]
    return "the oracle gains nothing" if gap is None else f"gap closed {gap:.2f}"
