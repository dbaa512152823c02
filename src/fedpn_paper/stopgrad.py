"""Labels 5-9 redrawn, twenty clients: the global density of clean and noisy rows, both losses."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedpn.core import metrics
from fedpn.federated.listener import Listener
from fedpn.nn.loss import LOSSES
from fedpn.runs.config import Config, resolve
from fedpn_paper.cells import PAPER, by_switch, without_preset
from fedpn_paper.figure import (
    KINDS,
    LOSS_NAMES,
    Result,
    Settings,
    histogram,
    kinds,
    legend_below,
    mean_of,
    page,
    plural,
)
from fedpn_paper.noise import Held, ask_global, train_noisy

TITLE = "Rows with noisy labels get more density from the repaired loss than from the original"
DEALINGS = {"noise": "dealt by noisy labels", "classes": "dealt by true classes"}


def settings_of(settings: Settings, seed: int, loss: str) -> Config:
    """The paper's federation: 20 clients of at most 3 classes each."""
    layers: list[dict[str, Any]] = [{"seed": seed, "fedpn": {"loss": loss}}]
    if settings.rounds is not None:
        layers.append({"rounds": settings.rounds})
    if settings.quick:
        small = {"dataset": "digits", "rounds": 5, "clients": 10}
        return by_switch(resolve([PAPER, small, *layers]))
    size = {"rounds": 100, "clients": 20}
    return by_switch(without_preset("mnist", [PAPER, size, *layers]))


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Trains a federation with each loss, the same in all else, for both ways of dealing."""
    seeds = []
    for seed in settings.seeds:
        measured: Result = {dealing: {} for dealing in DEALINGS}
        for dealing, loss in [(d, loss) for d in DEALINGS for loss in LOSSES]:
            config = settings_of(settings, seed, loss)
            name = f"{config.dataset}-{dealing}-{loss}-r{config.rounds}-s{seed}"
            listener.say(f"{config.dataset}, {DEALINGS[dealing]}, {LOSS_NAMES[loss]}, seed {seed}")
            noisy = train_noisy(config, out / "runs" / name, listener, dealing == "classes")
            measured[dealing][loss] = measure(ask_global(noisy))
        seeds.append(measured)
    dataset = noisy.trained.setup.dataset
    training = {"rounds": config.rounds, "clients": config.clients}
    about = {"name": dataset.name, "note": dataset.note}
    return {"data": [about], "training": training, "per_seed": seeds}


def measure(held: Held) -> Result:
    """The density of clean and noisy rows, and how well it tells them apart."""
    noisy, z, log_p = torch.from_numpy(held.noisy), held.opinion.z, held.opinion.log_density
    assert log_p is not None
    groups = {"clean": log_p[~noisy].double(), "noisy": log_p[noisy].double()}
    return {
        "rows": {name: len(values) for name, values in groups.items()},
        "median": {name: float(values.median()) for name, values in groups.items()},
        "auroc": metrics.auroc(-groups["clean"], -groups["noisy"]),
        "spread": {"clean": spread(z[~noisy]), "noisy": spread(z[noisy])},
        "histogram": histogram({name: values.numpy() for name, values in groups.items()}),
    }


def spread(z: Tensor) -> float:
    """The root mean square distance of embeddings to their mean.

    >>> spread(torch.tensor([[0.0, 1.0], [0.0, -1.0]]))
    1.0
    """
    return float((z - z.mean(0)).square().sum(-1).mean().sqrt())


def draw(result: Result) -> Figure:
    """A histogram for each loss and way of dealing, of the first seed."""
    first, training = result["per_seed"][0], result["training"]
    rows = first["noise"]["repaired"]["rows"]
    foot = (
        f"{result['data'][0]['name']}, labels 5-9 redrawn among themselves; "
        f"{training['clients']} clients of at most 3 labels (above) or classes (below); "
        f"{training['rounds']} rounds; {sum(rows.values())} held-out rows, clean and noisy by "
        "their class before the noise; AUROC of low density for noisy rows; the outermost bars "
        "hold what lies beyond"
    )
    figure = page(result["title"], 9.5, 6.6, foot)
    grid = figure.subplots(2, 2)
    for row, (dealing, name) in zip(grid, DEALINGS.items(), strict=True):
        for ax, loss in zip(row, LOSSES, strict=True):
            measured = first[dealing][loss]
            kinds(ax, measured["histogram"])
            ax.set_title(f"{name}, {LOSS_NAMES[loss]}: AUROC {measured['auroc']:.3f}")
        row[0].set_ylabel("share of rows")
    for ax in grid[1]:
        ax.set_xlabel("log p(z) of the global model (nats)")
        legend_below(ax, 2)
    return figure


def say(result: Result) -> str:
    """Medians of clean and noisy rows under each loss, and whether the paper's picture is ours."""
    seeds = result["per_seed"]
    parts = []
    for dealing, name in DEALINGS.items():
        mean = partial(mean_of, seeds, dealing)
        medians = {
            loss: {kind: mean(loss, "median", kind) for kind in ("clean", "noisy")}
            for loss in LOSSES
        }
        original, repaired = medians["bayesian"], medians["repaired"]
        parts.append(
            f"Rows {name}: the median log-density of noisy rows is {original['noisy']:.1f} nats "
            f"under the original loss and {repaired['noisy']:.1f} under the repaired one, that of "
            f"clean rows {original['clean']:.1f} and {repaired['clean']:.1f}; so noisy rows lie "
            f"{_beside(original)} clean ones under the original loss (AUROC of low density for "
            f"noisy rows {mean('bayesian', 'auroc'):.3f}) and {_beside(repaired)} under the "
            f"repaired one ({mean('repaired', 'auroc'):.3f}). {_verdict(original, repaired)} "
            f"The embeddings of noisy rows spread by {mean('bayesian', 'spread', 'noisy'):.2f} and "
            f"{mean('repaired', 'spread', 'noisy'):.2f}, those of clean rows by "
            f"{mean('bayesian', 'spread', 'clean'):.2f} and "
            f"{mean('repaired', 'spread', 'clean'):.2f}{_together(mean)}."
        )
    return f"{' '.join(parts)} {plural(len(seeds), 'seed')}."


def _together(mean: Callable[..., float]) -> str:
    """Says so where the repaired loss makes the encoder gather noisy rows more than clean ones."""
    shrunk = {k: mean("repaired", "spread", k) / mean("bayesian", "spread", k) for k in KINDS}
    gathers = shrunk["noisy"] < 0.8 * shrunk["clean"]
    return ": the encoder gathers what no label keeps apart" if gathers else ""


def _beside(medians: Result) -> str:
    """
    >>> _beside({"clean": 1.0, "noisy": -0.25})
    '1.2 nats below'
    """
    gap = medians["noisy"] - medians["clean"]
    return f"{abs(gap):.1f} nats {'above' if gap > 0 else 'below'}"


def _verdict(original: Result, repaired: Result) -> str:
    """Two claims: the repair gives noisy rows mass, and the original loss leaves them without."""
    gained = repaired["noisy"] - repaired["clean"] > original["noisy"] - original["clean"]
    starved = original["noisy"] < original["clean"]
    first = "gives" if gained else "does not give"
    second = "leaves them below the clean ones" if starved else "does not starve them"
    agrees = {2: "as the paper says", 1: "half of what the paper says", 0: "unlike the paper"}
    return (
        f"The repair {first} noisy rows more mass in proportion, and the original loss {second}: "
        f"{agrees[gained + starved]}."
    )
