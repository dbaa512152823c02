"""Labels 5-9 redrawn at random: aleatoric and epistemic uncertainty of clean and noisy classes."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from fedpn.core import metrics
from fedpn.data.sources.own import open_dataset
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt, Calibrate, FitRouter, views_of
from fedpn.federated.site import Site
from fedpn.reporting.plots import INK
from fedpn.routing.opinion import join
from fedpn.routing.rules import from_state
from fedpn.routing.scores import SCORES
from fedpn.runs.config import Config, resolve
from fedpn.runs.phases import phases_of, router_of
from fedpn_paper.cells import PAPER, by_switch, without_preset
from fedpn_paper.figure import (
    Result,
    Settings,
    average,
    histogram,
    kinds,
    legend_below,
    mean_of,
    page,
    plural,
)
from fedpn_paper.noise import Held, ask_global, train_noisy

TITLE = "Label noise shows as aleatoric uncertainty; the density does not take it for the unknown"
LIMIT = 1.0  # nats: the paper's threshold between noisy and clean
STEPS = 50  # a round, of the single model
PARTS = {"clients": "the clients' own models", "single": "one model of all rows"}
CHANCE = 0.1  # an AUROC no further from a half tells nothing


def settings_of(settings: Settings, seed: int, part: str) -> Config:
    """One model that sees all rows (a federation of a single client), or the paper's twenty."""
    single = part == "single"
    layers: list[dict[str, Any]] = [{"seed": seed}]
    if settings.rounds is not None:
        layers.append({"rounds": settings.rounds})
    if settings.quick:
        size: dict[str, Any] = {"dataset": "digits", "clients": 1 if single else 5, "rounds": 10}
        stage = {"fedpn": {"adapt_steps": 60, "adapt_epochs": 1}}
        return by_switch(resolve([PAPER, size, stage, *layers]))
    work = {"steps": STEPS} if single else {}
    size = {"clients": 1 if single else 20, "rounds": 100, "train": work}
    return by_switch(without_preset("mnist", [PAPER, size, *layers]))


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Trains both on noisy labels, and asks them for test rows."""
    seeds, training = [], {}
    for seed in settings.seeds:
        measured: Result = {}
        for part, play in {"clients": clients, "single": single}.items():
            config = settings_of(settings, seed, part)
            listener.say(f"{config.dataset} with noisy labels: {PARTS[part]}, seed {seed}")
            place = out / "runs" / f"{config.dataset}-noisy-{part}-r{config.rounds}-s{seed}"
            found = play(config, place, listener)
            measured[part] = found
            work = config.train
            training[part] = {"rounds": config.rounds, "clients": config.clients} | {
                "steps": work.steps,
                "batch": work.batch,
            }
        seeds.append(measured)
    dataset = open_dataset(config.dataset)
    return {
        "data": [{"name": dataset.name, "note": dataset.note}],
        "training": training,
        "per_seed": seeds,
    }


def single(config: Config, place: Path, listener: Listener) -> Result:
    """One model, and all test rows."""
    return measure([ask_global(train_noisy(config, place, listener))])


def clients(config: Config, place: Path, listener: Listener) -> Result:
    """Every client's own model, and its own test rows; classes are dealt before the noise."""
    noisy = train_noisy(config, place, listener, dealt_first=True)
    simulator, setup, server = noisy.trained.simulator, noisy.trained.setup, noisy.trained.server
    stage = [p for p in phases_of(config) if isinstance(p, Adapt | FitRouter | Calibrate)]
    simulator.visit(stage, server, listener)
    router, observe = router_of(config), setup.observer(config.method, server)
    assert router is not None
    held, sent = [], []
    for client, rows in enumerate(setup.federation.test):
        member = simulator.members[client]
        views = views_of(Site(client, setup, observe=observe), router, member, rows)
        held.append(noisy.hold(views.local, rows))
        rule = from_state("quantiles", member["rule"])
        sent.append(rule.decide(views).delegated)
    dark = torch.cat([torch.from_numpy(h.noisy) for h in held])
    delegated = torch.cat(sent).double()
    shares = {"clean": delegated[~dark].mean(), "noisy": delegated[dark].mean()}
    return measure(held) | {"delegated": {name: float(share) for name, share in shares.items()}}


def measure(parts: list[Held]) -> Result:
    """Histograms of all rows; AUROCs within each model that has both kinds, then their mean."""
    noisy = torch.cat([torch.from_numpy(held.noisy) for held in parts])
    seen = join([held.opinion for held in parts])
    aleatoric, log_p = seen.aleatoric.double(), -SCORES["log_density"](seen).double()
    right = seen.label == torch.cat([torch.from_numpy(held.labels) for held in parts])
    groups = {"clean": ~noisy, "noisy": noisy}
    return {
        "rows": {name: int(chosen.sum()) for name, chosen in groups.items()},
        "auroc": average(
            [aurocs(held) for held in parts if 0 < held.noisy.sum() < len(held.noisy)]
        ),
        "above_limit": {
            name: float((aleatoric[chosen] > LIMIT).double().mean())
            for name, chosen in groups.items()
        },
        "clean_accuracy": float(right[~noisy].double().mean()),
        "aleatoric": histogram({n: aleatoric[g].numpy() for n, g in groups.items()}, cut=0),
        "log_density": histogram({n: log_p[g].numpy() for n, g in groups.items()}),
    }


def aurocs(held: Held) -> Result:
    """How well each uncertainty tells noisy classes from clean ones."""
    noisy = torch.from_numpy(held.noisy)
    scores = {
        "aleatoric": held.opinion.aleatoric,
        "epistemic": SCORES["log_density"](held.opinion),
        "dirichlet_entropy": SCORES["dirichlet_entropy"](held.opinion),
    }
    return {name: metrics.auroc(score[~noisy], score[noisy]) for name, score in scores.items()}


def draw(result: Result) -> Figure:
    """Two histograms for each way of training, of the first seed."""
    training = result["training"]
    steps = training["single"]["rounds"] * training["single"]["steps"]
    foot = (
        f"{result['data'][0]['name']}, labels 5-9 redrawn among themselves, repaired loss. Above: "
        f"{training['clients']['clients']} clients of at most 3 classes, "
        f"{training['clients']['rounds']} rounds and the personal stage, each on its own held-out "
        f"rows. Below: {steps} steps of {training['single']['batch']} on all training rows. "
        "Clean and noisy by the class before the noise; AUROC: of high entropy and of low density "
        "for noisy rows; the outermost bars hold what lies beyond; dashed: the paper's limit"
    )
    figure = page(result["title"], 9.5, 6.6, foot)
    grid = figure.subplots(2, 2)
    for (left, right), (part, name) in zip(grid, PARTS.items(), strict=True):
        first = result["per_seed"][0][part]
        kinds(left, first["aleatoric"])
        left.axvline(LIMIT, color=INK, linestyle="--", linewidth=1)
        left.set(yscale="log", title=f"{name}: AUROC {first['auroc']['aleatoric']:.3f}")
        kinds(right, first["log_density"])
        right.set_title(f"{name}: AUROC {first['auroc']['epistemic']:.3f}")
        left.set(xlabel="aleatoric: expected entropy (nats)", ylabel="share of rows")
        right.set(xlabel="epistemic: log p(z) (nats)", ylabel="share of rows")
    for ax in grid[1]:
        legend_below(ax, 2)
    return figure


def say(result: Result) -> str:
    """The AUROCs of both ways, the paper's threshold, and who is delegated."""
    seeds = result["per_seed"]
    parts = []
    for part, name in PARTS.items():
        mean = partial(mean_of, seeds, part)
        parts.append(
            f"{name[0].upper()}{name[1:]}: the expected entropy tells noisy from clean classes "
            f"with AUROC {mean('auroc', 'aleatoric'):.3f} (above the paper's limit of {LIMIT:g} "
            f"nat lie {100 * mean('above_limit', 'noisy'):.0f} % of noisy rows and "
            f"{100 * mean('above_limit', 'clean'):.0f} % of clean ones), the density with "
            f"{mean('auroc', 'epistemic'):.3f}: {_verdict(mean('auroc', 'epistemic'))}; the "
            "entropy of the Dirichlet, the paper's other epistemic score, with "
            f"{mean('auroc', 'dirichlet_entropy'):.3f}. Clean classes are answered rightly in "
            f"{100 * mean('clean_accuracy'):.1f} % of rows."
        )
    sent = {kind: mean_of(seeds, "clients", "delegated", kind) for kind in ("clean", "noisy")}
    return (
        " ".join(parts) + f" Of their own rows the clients delegate {100 * sent['clean']:.0f} % of "
        f"clean and {100 * sent['noisy']:.0f} % of noisy ones to the global model. "
        f"{plural(len(seeds), 'seed')}."
    )


def _verdict(auroc: float) -> str:
    """
    >>> _verdict(0.5), _verdict(0.1)[:22]
    ('next to chance, as the paper has it', 'noisy rows lie higher,')
    """
    if abs(auroc - 0.5) < CHANCE:
        return "next to chance, as the paper has it"
    where = "lower" if auroc > 0.5 else "higher"
    return f"noisy rows lie {where}, so that it does tell them apart, which the paper does not see"
