"""The paper's figures and some of ours: the name table, and how one is played."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedpn.errors import UserError

if TYPE_CHECKING:
    from fedpn.experiments.figure import Experiment, Settings
    from fedpn.rounds import Company

# Loaded on first use: the command line lists them without PyTorch.
EXPERIMENTS = {
    "landscape": "the loss over the density, for fixed answers, and where its slope turns",
    "toy": "three Gaussians, one of them ambiguous: the density that each loss learns",
    "noisy": "labels 5-9 redrawn: aleatoric and epistemic uncertainty, clean and noisy classes",
    "stopgrad": "labels 5-9 redrawn, 20 clients: the global density under both losses",
    "threshold": "accuracy of local, global and switch over the quantile of the threshold",
    "overhead": "parameters and time that the density costs",
    "scores": "which uncertainty score routes best",
    "strangers": "inputs that nobody knows: another dataset, negatives, noise",
}


def find(name: str) -> "Experiment":
    """Loads an experiment by its name."""
    if name not in EXPERIMENTS:
        raise UserError(f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return cast("Experiment", importlib.import_module(f"fedpn.experiments.{name}"))


def play(
    name: str, out: Path, settings: "Settings", company: "Company | None" = None
) -> dict[str, Any]:
    """Runs an experiment into `out`: result.json, figure.svg, figure.png; returns the result.

    A finished one with the same settings is kept, a half one goes on.
    """
    from fedpn import plots, rounds, store
    from fedpn.experiments import figure

    experiment, asked = find(name), settings.told()
    kept = out / "result.json"
    if kept.exists() and store.read_json(kept)["settings"] == asked:
        return dict(store.read_json(kept))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made: {error.strerror}") from None
    result = figure.tidy(experiment.run(out, settings, company or rounds.Company()))
    about = {"format": 1, "experiment": name, "title": experiment.TITLE}
    result = about | {"text": experiment.say(result), "settings": asked} | result
    with figure.style():
        drawn = experiment.draw(result)
        store.write_text(out / "figure.svg", plots.to_svg(drawn))
        store.write_bytes(out / "figure.png", figure.to_png(drawn))
    store.write_json(kept, result)
    return dict(result)
