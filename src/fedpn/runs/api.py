"""The whole way of the data from Python, as `fedpn run` goes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpn.core.settings import nest
from fedpn.federated.listener import Listener
from fedpn.runs import pipeline
from fedpn.runs.config import resolve


def run(
    out: str | Path,
    tell: Callable[..., None] | None = None,
    listener: Listener | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Runs a federation into the directory `out` and returns its metrics.

    Settings are the keys that `fedpn settings` lists, a double underscore for each dot:
    `fedpn.run("runs/a", dataset="mnist", rounds=10, fedpn__gamma=0.02)`. `algorithm` may also be
    a class of your own. A `Listener` hears how the run goes; `tell(stage, done, of, **facts)` is
    the short form of one.
    """
    method = settings.get("algorithm")
    if isinstance(method, type):
        settings["algorithm"] = f"{method.__module__}:{method.__qualname__}"
    tree = nest({key.replace("__", "."): value for key, value in settings.items()})
    heard = listener or (Listener() if tell is None else _Teller(tell))
    return pipeline.run(resolve([tree]), Path(out), listener=heard)


class _Teller(Listener):
    """Passes progress on to a function."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell = tell

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        self.tell(stage, done, of, **facts)
