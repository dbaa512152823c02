"""Labels 5-9 redrawn at random: aleatoric and epistemic uncertainty of clean and noisy classes."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedpn import dirichlet, metrics
from fedpn.config import Config, resolve
from fedpn.experiments.figure import (
    KINDS,
    Result,
    Settings,
    histogram,
    legend_below,
    mean_of,
    page,
    plural,
)
from fedpn.experiments.noise import Held, federate_noisy
from fedpn.plots import INK
from fedpn.rounds import Company

TITLE = "Label noise shows as aleatoric uncertainty, and hardly as epistemic"
LIMIT = 1.0  # nats: the paper's threshold between noisy and clean
STEPS = 50  # a round


def settings_of(settings: Settings, seed: int) -> Config:
    """One model that sees all rows: a federation of a single client."""
    small = {"dataset": "digits", "rounds": 20}
    full = {"dataset": "mnist", "rounds": 100, "train": {"steps": STEPS}}
    layer: dict[str, Any] = small if settings.quick else full
    rounds = {} if settings.rounds is None else {"rounds": settings.rounds}
    return resolve([layer, {"clients": 1, "seed": seed}, rounds])


def run(out: Path, settings: Settings, company: Company) -> Result:
    """Trains the paper's model on the noisy labels, and asks it for all test rows."""
    seeds = []
    for seed in settings.seeds:
        config = settings_of(settings, seed)
        place = out / "runs" / f"{config.dataset}-noisy-single-r{config.rounds}-s{seed}"
        ready, held = federate_noisy(config, place, company)
        seeds.append(measure(held))
    about = {"name": ready.dataset.name, "note": ready.dataset.note}
    training = {"rounds": config.rounds, "steps": config.train.steps, "batch": config.train.batch}
    return {"data": [about], "training": training, "per_seed": seeds}


def measure(held: Held) -> Result:
    """Histograms and how well each uncertainty tells noisy classes from clean ones."""
    noisy = torch.from_numpy(held.noisy)
    aleatoric = dirichlet.expected_entropy(held.posterior.alpha)
    scores = {
        "aleatoric": aleatoric,
        "epistemic": -held.posterior.log_density,
        "dirichlet_entropy": dirichlet.entropy(held.posterior.alpha),
    }
    said = held.posterior.alpha.argmax(-1).numpy()
    groups = {"clean": ~noisy, "noisy": noisy}
    return {
        "rows": {name: int(chosen.sum()) for name, chosen in groups.items()},
        "auroc": {name: metrics.auroc(s[~noisy], s[noisy]) for name, s in scores.items()},
        "above_limit": {
            name: float((aleatoric[chosen] > LIMIT).double().mean())
            for name, chosen in groups.items()
        },
        "clean_accuracy": float((said == held.labels)[~held.noisy].mean()),
        "aleatoric": histogram({n: aleatoric[g].numpy() for n, g in groups.items()}, cut=0),
        "log_density": histogram(
            {n: held.posterior.log_density[g].numpy() for n, g in groups.items()}
        ),
    }


def draw(result: Result) -> Figure:
    """Two histograms, of the first seed."""
    first, training = result["per_seed"][0], result["training"]
    foot = (
        f"{result['data'][0]['name']}, labels 5-9 redrawn among themselves; one model of all "
        f"training rows, {training['rounds'] * training['steps']} steps of {training['batch']}, "
        f"repaired loss; held-out rows: {first['rows']['clean']} clean, {first['rows']['noisy']} "
        "noisy, by their class before the noise"
    )
    figure = page(TITLE, 9.5, 4.0, foot)
    left, right = figure.subplots(1, 2)
    _bars(left, first["aleatoric"])
    left.axvline(LIMIT, color=INK, linestyle="--", linewidth=1)
    left.set(xlabel="expected entropy (nats)", yscale="log")
    left.set_title(f"aleatoric uncertainty: AUROC {first['auroc']['aleatoric']:.3f}")
    _bars(right, first["log_density"])
    right.set(xlabel="log p(z) (nats)")
    right.set_title(f"epistemic uncertainty: AUROC {first['auroc']['epistemic']:.3f}")
    return figure


def _bars(ax: Axes, bins: Result) -> None:
    for name in ("clean", "noisy"):
        label = "classes 0-4, clean" if name == "clean" else "classes 5-9, noisy"
        look: dict[str, Any] = {"fill": True, "alpha": 0.55, "color": KINDS[name]}
        ax.stairs(bins[name], bins["edges"], label=label, **look)
    ax.set_ylabel("share of rows")
    legend_below(ax, 2)


def say(result: Result) -> str:
    """The two AUROCs, and the paper's threshold."""
    seeds = result["per_seed"]
    mean = partial(mean_of, seeds)
    aleatoric, epistemic = mean("auroc", "aleatoric"), mean("auroc", "epistemic")
    apart = "tells" if aleatoric > 0.9 else "does not tell"
    blind = abs(epistemic - 0.5) < 0.15
    return (
        f"The expected entropy {apart} rows of noisy classes from rows of clean ones: AUROC "
        f"{aleatoric:.3f}; above the paper's limit of {LIMIT:g} nat lie "
        f"{100 * mean('above_limit', 'noisy'):.1f} % of the noisy rows and "
        f"{100 * mean('above_limit', 'clean'):.1f} % of the clean ones. The density's AUROC is "
        f"{epistemic:.3f}, where 0.5 is chance"
        + (
            ": it does not tell them apart, as the paper says. "
            if blind
            else (
                ": noisy rows lie "
                + ("lower" if epistemic > 0.5 else "higher")
                + " in density than clean ones, which the paper does not see. "
            )
        )
        + "The entropy of the Dirichlet, the paper's other epistemic score, has "
        f"{mean('auroc', 'dirichlet_entropy'):.3f}: it rises with ambiguity too. Clean classes "
        f"are answered rightly in {100 * mean('clean_accuracy'):.1f} % of rows. "
        f"One model, trained on all training rows; {plural(len(seeds), 'seed')}."
    )
