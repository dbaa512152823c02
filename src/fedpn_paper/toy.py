"""Three Gaussians, the middle one with random labels: the density that each loss learns."""

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import vmap

from fedpn.algorithms.base import batches, fit
from fedpn.core.optim import adam
from fedpn.core.task import Data
from fedpn.core.trees import Params
from fedpn.data.batches import draw as draw_plan
from fedpn.data.batches import stack_plans
from fedpn.data.dataset import Array
from fedpn.federated.listener import Listener, Stopped
from fedpn.nn.density import RadialFlows
from fedpn.nn.loss import LOSSES
from fedpn.nn.posterior import Normalise, PosteriorNetwork, parameters
from fedpn.nn.task import Model, make_model
from fedpn.reporting.plots import INK
from fedpn_paper.figure import LOSS_COLOURS, LOSS_NAMES, Result, Settings, page

TITLE = (
    "The original loss takes density away from an ambiguous cluster as classes grow in number; "
    "the repaired loss does not"
)
DEVIATION = 0.1
SURE = ((-1.0, 0.0), (1.0, 0.0))
LOST = 4.0  # nats below the truth: a cluster that the density leaves out
MIDDLES = {"text": (0.0, 1.0), "picture": (0.0, 0.0)}  # as the paper writes it, and draws it
WINDOWS = {"text": (-1.5, 1.5, -0.6, 1.6), "picture": (-1.5, 1.5, -1.1, 1.1)}
ROWS = 500  # a cluster
LAYERS, BATCH, RATE, GAMMA = 30, 64, 1e-2, 0.01
GRID, SHOWN = 64, 120


class Size(NamedTuple):
    """How much is trained."""

    classes: tuple[int, ...]
    mapped: int  # the number of classes whose densities are shown
    steps: int
    repeats: int  # a seed


class Networks(NamedTuple):
    """Several networks of one kind, side by side."""

    model: Model
    params: Params  # [seeds, ...] each


FULL = Size((3, 5, 10, 20, 50, 100, 200), 20, 2000, 9)
QUICK = Size((3, 30), 30, 80, 2)


def true_density(middle: tuple[float, float], z: Array) -> Array:  # [n, 2] -> [n]
    """The density of the three Gaussians, a third each."""
    centres = np.array([SURE[0], middle, SURE[1]])
    squares = ((z[:, None] - centres) ** 2).sum(-1) / DEVIATION**2
    density: Array = np.exp(-squares / 2).mean(-1) / (2 * math.pi * DEVIATION**2)
    return density


def sample(middle: tuple[float, float], classes: int, seed: tuple[int, ...]) -> tuple[Array, Array]:
    """Draws as many rows of each cluster: left the first class, right the last, middle any."""
    rng = np.random.default_rng(seed)
    centres = np.repeat([SURE[0], middle, SURE[1]], ROWS, axis=0)
    x = centres + DEVIATION * rng.standard_normal(centres.shape)
    labels = np.random.default_rng((*seed, classes)).integers(0, classes, ROWS)
    y = np.concatenate([np.zeros(ROWS, int), labels, np.full(ROWS, classes - 1)])
    return x.astype(np.float32), y


def network(classes: int, seed: int) -> PosteriorNetwork:
    """NatPN in the plane: one flow, and no encoder."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        same = Normalise(torch.zeros(2), torch.ones(2))
        return PosteriorNetwork(same, nn.Identity(), RadialFlows(2, 1, LAYERS), 2, classes)


def train(
    loss: str, middle: tuple[float, float], classes: int, steps: int, seeds: list[tuple[int, int]]
) -> Networks:
    """Trains one network for each seed, all of them stacked."""
    networks = [network(classes, 1000 * seed + repeat) for seed, repeat in seeds]
    model = make_model(networks[0], partial(LOSSES[loss], gamma=GAMMA))
    params = _stack([parameters(n) for n in networks])
    drawn = [sample(middle, classes, (seed, 21, repeat)) for seed, repeat in seeds]
    x, y = (torch.from_numpy(np.stack(column)) for column in zip(*drawn, strict=True))
    everything = np.arange(3 * ROWS)
    plans = [
        draw_plan(everything, steps, BATCH, np.random.default_rng((*seed, 22))) for seed in seeds
    ]

    def one(params: Params, data: Data, plan: Any) -> Params:
        return fit(model.top, params, lambda n: n != "prior", adam(RATE), batches(data, plan))

    return Networks(model, vmap(one)(params, Data(x, y), stack_plans(plans)))


def _stack(all_params: list[Params]) -> Params:
    return {name: torch.stack([p[name] for p in all_params]) for name in all_params[0]}


@torch.no_grad()
def log_density(trained: Networks, z: Array) -> Tensor:  # [n, 2] -> [seeds, n]
    """Asks every stacked network for log p(z)."""
    points = torch.from_numpy(z.astype(np.float32))
    log_p: Tensor = vmap(lambda p: trained.model.posterior(p, points).log_density)(trained.params)
    return log_p


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Trains both losses for every number of classes and both places of the middle cluster."""
    size = QUICK if settings.quick else FULL
    seeds = [(seed, repeat) for seed in settings.seeds for repeat in range(size.repeats)]
    work = [(m, k, loss) for m in MIDDLES for k in size.classes for loss in LOSSES]
    result: Result = {"data": [], "classes": list(size.classes), "steps": size.steps}
    result |= {"networks": len(seeds), "true": {}, "maps": {}, "places": {m: {} for m in MIDDLES}}
    for done, (place, classes, loss) in enumerate(work):
        listener.progress("training", done, len(work))
        if listener.stopping():
            raise Stopped(f"after {done} of {len(work)} trainings")
        middle = MIDDLES[place]
        trained = train(loss, middle, classes, size.steps, seeds)
        measured = _measure(trained, middle)
        result["places"][place].setdefault(loss, []).append(measured)
        if place == "text" and classes == size.mapped:
            result["maps"][loss] = _map(trained, place)
    for place, middle in MIDDLES.items():
        centre = float(np.log(true_density(middle, np.array([middle]))[0]))
        result["true"][place] = {"centre": centre, "rows": centre - math.log(2)}
    x, y = sample(MIDDLES["text"], size.mapped, (settings.seeds[0], 21, 0))
    chosen = np.concatenate([np.arange(SHOWN) + ROWS * i for i in range(3)])
    result["sample"] = {"x": x[chosen].round(3), "y": y[chosen], "classes": size.mapped}
    return result


def _measure(trained: Networks, middle: tuple[float, float]) -> Result:
    """Log-density at the centre of the middle cluster, over fresh rows of it, and at the others.

    `sure` is the lower one of the two clusters whose label is certain.
    """
    fresh = np.array(middle) + DEVIATION * np.random.default_rng(23).standard_normal((1000, 2))
    log_p = log_density(trained, np.concatenate([SURE, [middle], fresh]))
    return {
        "centre": log_p[:, 2],
        "rows": log_p[:, 3:].median(1).values,
        "sure": log_p[:, :2].amin(1),
    }


def _map(trained: Networks, place: str) -> list[list[float]]:
    """The log-density over a window, of the network with the median density at the middle."""
    left, right, bottom, top = WINDOWS[place]
    across, up = np.meshgrid(np.linspace(left, right, GRID), np.linspace(bottom, top, GRID))
    middle = log_density(trained, np.array([MIDDLES[place]]))[:, 0]
    median = int(middle.argsort()[len(middle) // 2])
    log_p = log_density(trained, np.stack([across.ravel(), up.ravel()], 1))[median]
    grid: list[list[float]] = log_p.reshape(GRID, GRID).double().numpy().round(2).tolist()
    return grid


def draw(result: Result) -> Figure:
    """Above: the data and what both losses learn; below: the middle density against K."""
    foot = (
        f"single radial flow of {LAYERS} layers, no encoder, {ROWS} rows a cluster, Adam {RATE:g}, "
        f"{result['steps']} steps of {BATCH}; median and range over {result['networks']} networks; "
        "maps: the median one"
    )
    figure = page(result["title"], 11.5, 7.2, foot)
    above, below = (figure.add_subfigure(figure.add_gridspec(2, 1)[i]) for i in (0, 1))
    data, *maps = above.subplots(1, 3)
    _draw_sample(data, result)
    for ax, (loss, grid) in zip(maps, result["maps"].items(), strict=True):
        left, right, bottom, top = WINDOWS["text"]
        look: dict[str, Any] = {"origin": "lower", "extent": (left, right, bottom, top)}
        image = ax.imshow(np.array(grid), cmap="viridis", vmin=-8, vmax=2, aspect="equal", **look)
        ax.set(title=f"{LOSS_NAMES[loss]}, K = {result['sample']['classes']}", xlabel="$z_1$")
        ax.grid(visible=False)
    above.colorbar(image, ax=maps, label="log p(z) (nats)", shrink=0.85)
    for ax, place in zip(below.subplots(1, 2, sharey=True), MIDDLES, strict=True):
        _draw_medians(ax, result, place)
    return figure


def _draw_sample(ax: Axes, result: Result) -> None:
    x, y = np.array(result["sample"]["x"]), np.array(result["sample"]["y"])
    ax.scatter(x[:, 0], x[:, 1], c=y, cmap="rainbow", s=7, linewidths=0)
    left, right, bottom, top = WINDOWS["text"]
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    ax.set_title("training rows, coloured by label")


def _draw_medians(ax: Axes, result: Result, place: str) -> None:
    classes = result["classes"]
    for loss, cells in result["places"][place].items():
        column = np.array([cell["centre"] for cell in cells])  # [K, networks]
        ax.plot(
            classes, np.median(column, 1), "o-", color=LOSS_COLOURS[loss], label=LOSS_NAMES[loss]
        )
        low, high = column.min(1), column.max(1)
        ax.fill_between(classes, low, high, color=LOSS_COLOURS[loss], alpha=0.15, linewidth=0)
    sure = medians(result, place, "bayesian", "sure")
    label = "original loss, the lower of the sure clusters"
    ax.plot(classes, sure, ":", color=LOSS_COLOURS["bayesian"], label=label)
    true = result["true"][place]["centre"]
    ax.axhline(true, color=INK, linestyle="--", linewidth=1.2, label=f"true value, {true:.2f}")
    name = "({:g}, {:g})".format(*MIDDLES[place])
    ax.set(xscale="log", xlabel="number of classes K", title=f"middle cluster at {name}")
    ax.set_xticks(classes, map(str, classes))
    ax.xaxis.minorticks_off()
    if place == "text":
        ax.set_ylabel("log p(z) at the centre of\nthe middle cluster (nats)")
        ax.legend(loc="lower left", fontsize=8)


def medians(result: Result, place: str, loss: str, what: str) -> list[float]:
    """The median over networks for every number of classes."""
    return [float(np.median(cell[what])) for cell in result["places"][place][loss]]


def say(result: Result) -> str:
    """Medians at the fewest and the most classes, for both losses and both places."""
    fewest, most = result["classes"][0], result["classes"][-1]
    parts = []
    for place, (x, y) in MIDDLES.items():
        true = result["true"][place]
        first = {(k, w): medians(result, place, k, w) for k in LOSSES for w in ("centre", "rows")}
        original, repaired = first["bayesian", "centre"], first["repaired", "centre"]
        falls = original[-1] < original[0] - 0.5 and repaired[-1] > repaired[0] - 0.5
        parts.append(
            f"With the middle cluster at ({x:g}, {y:g}) ({_source(place)}) the median log-density "
            f"at its centre goes from {original[0]:.2f} at K = {fewest} to {original[-1]:.2f} at "
            f"K = {most} with the original loss and from {repaired[0]:.2f} to {repaired[-1]:.2f} "
            f"with the repaired one; the truth is {true['centre']:.2f}. Over fresh rows of the "
            f"cluster the median is {first['bayesian', 'rows'][0]:.2f} to "
            f"{first['bayesian', 'rows'][-1]:.2f} and {first['repaired', 'rows'][0]:.2f} to "
            f"{first['repaired', 'rows'][-1]:.2f}; the truth is {true['rows']:.2f}. "
            + ("This is what the paper says." if falls else "This is not what the paper says.")
            + f" {_lost(result, place)}"
        )
    return (
        " ".join(parts) + " Without an encoder the repaired density learns from the likelihood "
        "alone: labels do not reach it, and its line is flat by construction. What stays between "
        "it and the truth is the single flow's own limit."
    )


def _source(place: str) -> str:
    return "as the text has it" if place == "text" else "as its picture suggests"


def _lost(result: Result, place: str) -> str:
    """Up to how many classes the clusters with a certain label keep their density."""
    limit = result["true"][place]["centre"] - LOST
    sure = medians(result, place, "bayesian", "sure")
    kept = next((i for i, value in enumerate(sure) if value < limit), len(sure))
    if kept == len(sure):
        return "The clusters with a certain label keep their density."
    middle, first = medians(result, place, "bayesian", "centre"), result["classes"][kept]
    before = (
        f"Up to K = {result['classes'][kept - 1]} the clusters with a certain label keep theirs "
        f"in most networks (the lower one has {sure[kept - 1]:.2f}), while the middle one falls to "
        f"{middle[kept - 1]:.2f}: this is for ambiguity. "
        if kept
        else ""
    )
    return (
        f"{before}From K = {first} on the original loss leaves out one of them as well in most: "
        "where the density is low its gradient vanishes, so that the rest of the fall "
        "is not for ambiguity alone."
    )
