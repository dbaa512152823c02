"""Inputs that nobody in the federation knows: who notices, and who answers all the same."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.data.dataset import Array
from fedpn.data.shift import invert
from fedpn.data.sources import datasets
from fedpn.federated.listener import Listener
from fedpn.reporting.plots import COLOURS, INK
from fedpn.routing.opinion import Opinion
from fedpn.routing.scores import POSTERIOR_SCORES, SCORES
from fedpn_paper.figure import DATA_COLOURS, Result, Settings, legend_below, page, plural
from fedpn_paper.grid import title_of
from fedpn_paper.opened import Opened, over
from fedpn_paper.refusal import SHARES, refuse
from fedpn_paper.score_names import short
from fedpn_paper.scores import NAMES

TITLE = (
    "The global model's total uncertainty notices most strangers, not all; its density may take "
    "them for well known"
)
PAIRS = {"mnist": "fashionmnist", "fashionmnist": "mnist"}
ROWS = 4000  # strangers of a kind
MARKS = {"other": "o", "negatives": "s", "noise": "^"}
KIND_NAMES = {"other": "another dataset", "negatives": "negatives", "noise": "noise"}


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Shows strangers to each federation: another set, negatives of known rows, noise."""
    wanted = ("digits",) if settings.quick else tuple(PAIRS)
    found = over(wanted, out, settings, listener, measure)
    data = [about | {"other": PAIRS.get(about["name"])} for about in found["data"]]
    return found | {"data": data, "shares": SHARES}


def strangers(opened: Opened) -> dict[str, Array]:
    """Draws as many images of each kind, in the form of the federation's own."""
    rng = seeds.stream("strangers", opened.config.seed)
    own = opened.setup.dataset
    other = PAIRS.get(own.name)
    known = np.concatenate(opened.setup.federation.test)
    chosen = rng.permutation(known)[:ROWS]
    kinds = {
        "negatives": invert(own.x[chosen], np.arange(len(chosen))),
        "noise": rng.integers(0, 256, (len(chosen), *own.shape), dtype=np.uint8),
    }
    if other is None or datasets.find(other) is None:
        return kinds
    foreign = datasets.load(other).x
    return {"other": foreign[rng.permutation(len(foreign))[: len(chosen)]]} | kinds


def measure(opened: Opened) -> Result:
    """How well each global score tells strangers, and what the four-outcome rule does."""
    pooled = np.sort(np.concatenate(opened.setup.federation.test))
    known = global_scores(opened.observe.shared(pooled))
    tree: Result = {"auroc": {}, "rule": {}}
    for kind, images in strangers(opened).items():
        z = opened.embed(images)
        strange = global_scores(opened.shared_view(z))
        tree["auroc"][kind] = {
            name: metrics.auroc(values, strange[name]) for name, values in known.items()
        }
        tree["rule"][kind] = refuse(opened, z)
    return tree


def global_scores(opinion: Opinion) -> dict[str, Tensor]:
    """Every score of the global model that needs no training rows."""
    names = (*POSTERIOR_SCORES, "msp", "energy")
    return {short(name): SCORES[name](opinion) for name in names}


def draw(result: Result) -> Figure:
    """AUROC of every global score and kind; risk against coverage, for the first kind."""
    kind = _shown(result)
    foot = (
        f"right: each client sees its Mix rows and as many strangers ({KIND_NAMES[kind]}); an "
        "answered stranger is an error; point: the rule as it is set; orderings are by the "
        f"answering model's total uncertainty; {plural(result['seeds'], 'seed')}"
    )
    sets = result["sets"]
    figure = page(result["title"], 6.4 + 3.2 * len(sets), 4.8, foot)
    axes = figure.subplots(1, 1 + len(sets), width_ratios=[1.25] + [1] * len(sets))
    _draw_scores(axes[0], result)
    for ax, about in zip(axes[1:], result["data"], strict=True):
        _draw_rule(ax, sets[about["name"]]["rule"][kind], result)
        other = title_of(about["other"]) if kind == "other" else KIND_NAMES[kind]
        ax.set_title(f"{title_of(about['name'])} federation, {other} shown")
    axes[1].set_ylabel("risk: share wrong of those answered")
    legend_below(axes[1], 2, 8)
    return figure


def _shown(result: Result) -> str:
    kinds = {kind for tree in result["sets"].values() for kind in tree["rule"]}
    return "other" if "other" in kinds else "negatives"


def _draw_scores(ax: Axes, result: Result) -> None:
    first = next(iter(result["sets"].values()))["auroc"]
    kind = _shown(result)
    names = sorted(first[kind], key=lambda n: _mean_auroc(result, kind, n), reverse=True)
    for (name, tree), colour in zip(result["sets"].items(), DATA_COLOURS, strict=False):
        for shown, mark in MARKS.items():
            if shown in tree["auroc"]:
                values = [tree["auroc"][shown][n] for n in names]
                label = f"{title_of(name)}: {KIND_NAMES[shown]}"
                look: dict[str, Any] = {"s": 32, "color": colour, "marker": mark, "alpha": 0.8}
                ax.scatter(values, range(len(names)), label=label, **look)
    ax.axvline(0.5, color=INK, lw=1, ls="--")
    ax.set_yticks(range(len(names)), [NAMES[n] for n in names])
    ax.invert_yaxis()
    ax.set(xlim=(-0.02, 1.02), xlabel="AUROC, strangers against known rows")
    ax.set_title("scores of the global model")
    legend_below(ax, 2, 8)


def _mean_auroc(result: Result, kind: str, score: str) -> float:
    return float(np.mean([tree["auroc"][kind][score] for tree in result["sets"].values()]))


def _draw_rule(ax: Axes, tree: Result, result: Result) -> None:
    for who, risk in tree["ordered"].items():
        coverage = np.linspace(0, 1, len(risk))
        ax.plot(coverage, risk, color=COLOURS[who], lw=1.2, label=f"{who}, surest first")
    shown = np.array(tree["coverage"]) > 0.01
    coverage, risk = (np.array(tree[name])[shown] for name in ("coverage", "risk"))
    ax.plot(coverage, risk, color=INK, lw=2, label="four-outcome rule")
    at = _set_share(result, tree)
    ax.plot(tree["coverage"][at], tree["risk"][at], "o", color=INK, ms=7)
    ax.set(xlim=(0, 1), ylim=(0, None), xlabel="coverage: share of rows answered")


def _set_share(result: Result, tree: Result) -> int:
    """The place of the share of abstention that the federation is set to, or the nearest."""
    return int(np.abs(np.array(result["shares"]) - tree["abstain"]).argmin())


def say(result: Result) -> str:
    """AUROC of total uncertainty and density, and the rule at its own setting."""
    parts = []
    for about in result["data"]:
        tree = result["sets"][about["name"]]
        for kind, scores in tree["auroc"].items():
            best = max(scores, key=lambda n: scores[n])
            rule_, at = tree["rule"][kind], _set_share(result, tree["rule"][kind])
            shown = title_of(about["other"]) if kind == "other" else KIND_NAMES[kind]
            parts.append(
                f"{shown} shown to the {title_of(about['name'])} federation: AUROC "
                f"{scores['entropy_of_mean']:.3f} by the entropy of the global mean, "
                f"{scores['log_density']:.3f} by the global density, best {scores[best]:.3f} by "
                f"{NAMES[best]}; at {100 * result['shares'][at]:.0f} % abstention the rule "
                f"answers {100 * rule_['strangers_answered'][at]:.0f} % of strangers and "
                f"{100 * rule_['known_answered'][at]:.0f} % of known rows, of which "
                f"{100 * rule_['known_wrong'][at]:.1f} % wrongly (risk over all "
                f"{100 * rule_['risk'][at]:.0f} %, with no abstention "
                f"{100 * rule_['risk'][0]:.0f} %)."
            )
    inverted = [
        f"{title_of(about['name'])} ({KIND_NAMES[kind]})"
        for about in result["data"]
        for kind, scores in result["sets"][about["name"]]["auroc"].items()
        if scores["log_density"] < 0.5
    ]
    verdict = (
        f" The global density is inverted for {', '.join(inverted)}: strangers lie where it is "
        "high, so that abstention must not rely on it."
        if inverted
        else ""
    )
    left = f" Not at hand: {', '.join(result['missing'])}." if result["missing"] else ""
    return " ".join(parts) + verdict + left
