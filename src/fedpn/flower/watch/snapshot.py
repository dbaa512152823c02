"""All that is watched at one moment, as plain values: what the page shows and programs read."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpn.flower.watch.standing import note, state_of
from fedpn.flower.watch.status import Run, Site, Unreadable, look

FORMAT = 1


def snapshot(places: Iterable[Path], now: float) -> dict[str, Any]:
    """Runs, nodes and what could not be read, in the order of their places."""
    return as_tree(look(places), now)


def as_tree(items: Iterable[Run | Site | Unreadable], now: float) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "format": FORMAT,
        "time": now,
        "runs": [],
        "nodes": [],
        "unreadable": [],
    }
    for item in items:
        if isinstance(item, Unreadable):
            tree["unreadable"].append(asdict(item))
        else:
            told = asdict(item) | {"state": state_of(item, now), "note": note(item, now)}
            tree["runs" if isinstance(item, Run) else "nodes"].append(told)
    return tree
