"""The whole way of the data from Python, as `fedpn run` goes it."""

from pathlib import Path
from typing import Any

from fedpn.runs import pipeline
from fedpn.runs.config import nest, resolve
from fedpn.federated.rounds import Company, Tell, quiet


def run(out: str | Path, tell: Tell = quiet, **settings: Any) -> dict[str, Any]:
    """Runs a federation into the directory `out` and returns its metrics.

    Settings are the keys that `fedpn settings` lists, a double underscore for each dot:
    `fedpn.run("runs/a", dataset="mnist", rounds=10, fedpn__gamma=0.02)`. `algorithm` may also be
    a class of your own.
    """
    method = settings.get("algorithm")
    if isinstance(method, type):
        settings["algorithm"] = f"{method.__module__}:{method.__qualname__}"
    tree = nest({key.replace("__", "."): value for key, value in settings.items()})
    return pipeline.run(resolve([tree]), Path(out), company=Company(tell))
