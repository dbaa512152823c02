"""Labels 5-9 redrawn, twenty clients: the global density of clean and noisy rows, both losses."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from fedpn import metrics
from fedpn.config import Config, resolve
from fedpn.experiments.figure import (
    KINDS,
    LOSS_NAMES,
    Result,
    Settings,
    histogram,
    legend_below,
    mean_of,
    page,
    plural,
)
from fedpn.experiments.noise import Held, ask_global, train_noisy
from fedpn.nn.loss import LOSSES
from fedpn.rounds import Company

TITLE = (
    "The original loss gives rows with noisy labels less density than clean ones, "
    "the repaired loss does not"
)


def settings_of(settings: Settings, seed: int, loss: str) -> Config:
    """The paper's federation: 20 clients of at most 3 labels each."""
    small = {"dataset": "digits", "rounds": 5, "clients": 10}
    full = {"dataset": "mnist", "rounds": 100, "clients": 20}
    layer: dict[str, Any] = small if settings.quick else full
    rounds = {} if settings.rounds is None else {"rounds": settings.rounds}
    return resolve([layer, {"seed": seed, "fedpn": {"loss": loss}}, rounds])


def run(out: Path, settings: Settings, company: Company) -> Result:
    """Trains a federation with each loss, the same in all else."""
    seeds = []
    for seed in settings.seeds:
        measured = {}
        for loss in LOSSES:
            config = settings_of(settings, seed, loss)
            place = out / "runs" / f"{config.dataset}-noisy-{loss}-r{config.rounds}-s{seed}"
            company.say(f"{config.dataset}, {LOSS_NAMES[loss]}, seed {seed}")
            ready, before, state = train_noisy(config, place, company)
            measured[loss] = measure(ask_global(config, ready, before, state))
        seeds.append(measured)
    about = {"name": ready.dataset.name, "note": ready.dataset.note}
    training = {"rounds": config.rounds, "clients": config.clients}
    return {"data": [about], "training": training, "per_seed": seeds}


def measure(held: Held) -> Result:
    """The density of clean and noisy rows, and how well it tells them apart."""
    noisy, log_p = torch.from_numpy(held.noisy), held.posterior.log_density
    groups = {"clean": log_p[~noisy].double(), "noisy": log_p[noisy].double()}
    low = groups["clean"].quantile(0.05)
    return {
        "rows": {name: len(values) for name, values in groups.items()},
        "median": {name: float(values.median()) for name, values in groups.items()},
        "auroc": metrics.auroc(-groups["clean"], -groups["noisy"]),
        "below_clean_5": float((groups["noisy"] < low).double().mean()),
        "histogram": histogram({name: values.numpy() for name, values in groups.items()}),
    }


def draw(result: Result) -> Figure:
    """A histogram for each loss, of the first seed."""
    first, training = result["per_seed"][0], result["training"]
    rows = first["repaired"]["rows"]
    foot = (
        f"{result['data'][0]['name']}, labels 5-9 redrawn among themselves, then dealt to "
        f"{training['clients']} clients of at most 3 labels; {training['rounds']} rounds; global "
        f"model; held-out rows: {rows['clean']} clean, {rows['noisy']} noisy"
    )
    figure = page(TITLE, 9.5, 4.0, foot)
    for ax, (loss, measured) in zip(figure.subplots(1, 2), first.items(), strict=True):
        bins = measured["histogram"]
        for name in ("clean", "noisy"):
            label = "classes 0-4, clean" if name == "clean" else "classes 5-9, noisy"
            look: dict[str, Any] = {"fill": True, "alpha": 0.55, "color": KINDS[name]}
            ax.stairs(bins[name], bins["edges"], label=label, **look)
        ax.set(xlabel="log p(z) of the global model (nats)", ylabel="share of rows")
        ax.set_title(f"{LOSS_NAMES[loss]}: AUROC {measured['auroc']:.3f}")
        legend_below(ax, 2)
    return figure


def say(result: Result) -> str:
    """How far noisy rows lie below clean ones, under each loss."""
    seeds = result["per_seed"]
    auroc = {loss: mean_of(seeds, loss, "auroc") for loss in LOSSES}
    low = {loss: mean_of(seeds, loss, "below_clean_5") for loss in LOSSES}
    median = {
        (loss, kind): mean_of(seeds, loss, "median", kind)
        for loss in LOSSES
        for kind in ("clean", "noisy")
    }
    gap = {loss: median[loss, "clean"] - median[loss, "noisy"] for loss in LOSSES}
    supports = auroc["bayesian"] > 0.6 and auroc["repaired"] < auroc["bayesian"] - 0.05
    return (
        "Under the original loss the median log-density of noisy rows lies "
        f"{_below(gap['bayesian'])} that of clean ones (AUROC of low density for noisy rows "
        f"{auroc['bayesian']:.3f}; {100 * low['bayesian']:.0f} % of noisy rows fall below the "
        "lowest twentieth of clean ones); under the repaired loss, with the same budget, it lies "
        f"{_below(gap['repaired'])} it (AUROC {auroc['repaired']:.3f}; "
        f"{100 * low['repaired']:.0f} %). "
        + (
            "This is what the paper says: the original loss does not give noisy rows their mass. "
            if supports
            else "This does not support the paper's claim. "
        )
        + f"{plural(len(seeds), 'seed')}."
    )


def _below(gap: float) -> str:
    """
    >>> _below(1.25), _below(-0.5)
    ('1.2 nats below', '0.5 nats above')
    """
    return f"{abs(gap):.1f} nats {'below' if gap > 0 else 'above'}"
