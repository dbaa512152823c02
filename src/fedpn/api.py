"""The whole way of the data from Python, as `fedpn run` goes it."""

from pathlib import Path
from typing import Any

from fedpn import pipeline
from fedpn.config import resolve
from fedpn.rounds import Company, Tell, quiet


def run(out: str | Path, tell: Tell = quiet, **settings: Any) -> dict[str, Any]:
    """Runs a federation into the directory `out` and returns its metrics.

    Settings are those of `fedpn run`; those inside a section take a double underscore:
    `fedpn.run("runs/a", dataset="mnist", rounds=10, fedpn__gamma=0.02)`.
    """
    layers = []
    for key, value in settings.items():
        tree: Any = value
        for part in reversed(key.split("__")):
            tree = {part: tree}
        layers.append(tree)
    return pipeline.run(resolve(layers), Path(out), company=Company(tell))
