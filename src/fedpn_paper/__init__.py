"""The paper's figures and some of ours: the name table, and how one is played."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedpn.core.errors import UserError

if TYPE_CHECKING:
    from fedpn.federated.listener import Listener
    from fedpn_paper.figure import Experiment, Settings

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
    return cast("Experiment", importlib.import_module(f"fedpn_paper.{name}"))


def is_kept(path: Path, asked: dict[str, Any]) -> bool:
    """Tells whether a result has the settings asked for."""
    from fedpn.core import store
    from fedpn_paper.record import ELSEWHERE, refuse_others

    made = store.read_json(path)["settings"]
    refuse_others(path, made, asked, grows=("seeds",))
    has, wants = set(made["seeds"]), set(asked["seeds"])
    if not (has <= wants or wants <= has):
        raise UserError(f"{path} has the seeds {made['seeds']}, not {asked['seeds']}; {ELSEWHERE}")
    return wants <= has


def play(
    name: str, out: Path, settings: "Settings", listener: "Listener | None" = None
) -> dict[str, Any]:
    """Runs an experiment into `out`: result.json, figure.svg, figure.png; returns the result.

    A finished one is kept, and a half one goes on; more seeds play it again. One with other
    settings is refused.
    """
    from fedpn.core import store
    from fedpn.federated.listener import Listener
    from fedpn_paper import figure

    experiment, asked = find(name), settings.told()
    kept = out / "result.json"
    if kept.exists() and is_kept(kept, asked):
        return dict(store.read_json(kept))
    store.make_folder(out)
    found = figure.tidy(experiment.run(out, settings, listener or Listener()))
    return present(name, out, {"settings": asked} | found)


def present(name: str, out: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Draws and tells what was found, and keeps it."""
    from fedpn.core import store
    from fedpn.reporting import plots
    from fedpn_paper import figure

    experiment = find(name)
    text = figure.typeset(experiment.say(found))
    full = found["settings"]["rounds"] is None and not found["settings"]["quick"]
    topic = EXPERIMENTS[name]  # what TITLE says is seen at full size only
    title = experiment.TITLE if full else f"{topic[0].upper()}{topic[1:]} (not at full size)"
    about = {"format": 1, "experiment": name, "title": title, "text": text}
    result = about | {key: value for key, value in found.items() if key not in about}
    with figure.style():
        drawn = experiment.draw(result)
        store.write_text(out / "figure.svg", plots.to_svg(drawn))
        store.write_bytes(out / "figure.png", figure.to_png(drawn))
    store.write_json(out / "result.json", result)
    return result
