"""Status files: what a run, a node and its link tell of themselves, read with care.

A server writes `status.json` into its run directory, a node's worker into its state directory,
where `fedpn flower supernode` keeps `link.json`. What else a file may hold is an `Unreadable`.
"""

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpn.flower.status import FILE as STATUS
from fedpn.flower.status import FORMAT, LINK
from fedpn.flower.watch.fields import (
    Nonsense,
    flag,
    items,
    number,
    one_of,
    process,
    seconds,
    share,
    table,
    taken,
    text,
    whole,
)

LARGEST = 8 * 2**20  # bytes of a file
NODES, WARNINGS, PLACES = 10_000, 50, 1000
HERE = ("here", "away", "left out")
WORKER = ("ready", "busy", "starting", "gone")
CONNECTED = ("connected", "waiting", "refused", "ended")


@dataclass(frozen=True)
class Warned:
    """Something that a run or a node warned of."""

    time: float | None
    text: str | None


@dataclass(frozen=True)
class Member:
    """A node, as a run sees it."""

    name: str
    state: str | None
    seen: float | None
    round: int | None
    rows: int | None
    seconds: float | None
    loss: float | None
    sent: int | None  # bytes to it
    received: int | None  # bytes from it
    why: str | None


@dataclass(frozen=True)
class Run:
    """A run, as its server tells it."""

    place: str
    version: str | None
    run: str | None
    name: str | None
    dataset: str | None
    algorithm: str | None
    secure: bool | None
    pid: int | None
    started: float | None
    updated: float | None
    ended: str | None
    phase: str | None
    round: int | None
    rounds: int | None
    left: float | None
    loss: float | None
    nodes: tuple[Member, ...]
    warnings: tuple[Warned, ...]
    figures: dict[str, dict[str, float | None]]  # accuracy, by predictor and set of rows


@dataclass(frozen=True)
class Link:
    """How a node stands with its SuperLink."""

    state: str | None
    superlink: str | None
    since: float | None
    why: str | None


@dataclass(frozen=True)
class Site:
    """A node, as it tells of itself."""

    place: str
    version: str | None
    name: str | None
    pid: int | None
    started: float | None
    updated: float | None
    worker: str | None
    run: str | None
    phase: str | None
    round: int | None
    rounds: int | None
    rows: int | None
    seconds: float | None
    loss: float | None
    received: int | None
    sent: int | None
    answered: int | None
    refused: int | None
    model: str | None
    warnings: tuple[Warned, ...]
    link: Link | None


@dataclass(frozen=True)
class Unreadable:
    """A file that is not what a federation writes."""

    place: str
    why: str


COMMON = {"version": text, "name": text, "pid": process, "started": seconds, "updated": seconds}
PROGRESS = {"run": text, "phase": text, "round": whole, "rounds": whole, "loss": number}
TRAFFIC = {"rows": whole, "seconds": seconds, "sent": whole, "received": whole}
RUN = {
    **COMMON,
    **PROGRESS,
    **dict.fromkeys(("dataset", "algorithm", "ended"), text),
    "secure": flag,
    "left": seconds,
}
MEMBER = {
    **TRAFFIC,
    "name": text,
    "state": one_of(*HERE),
    "seen": seconds,
    "round": whole,
    "loss": number,
    "why": text,
}
SITE = {
    **COMMON,
    **PROGRESS,
    **TRAFFIC,
    "worker": one_of(*WORKER),
    "answered": whole,
    "refused": whole,
    "model": text,
}
LINKED = {"state": one_of(*CONNECTED), "superlink": text, "since": seconds, "why": text}


def look(places: Iterable[Path]) -> list[Run | Site | Unreadable]:
    """What the status files of some places tell; of a place that has none, those right below it."""
    return [read(place) for place in _found(places)]


def _found(places: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for given in places:
        place = given.absolute()
        try:
            below = [] if _tells(place) else sorted(p for p in place.iterdir() if _tells(p))
        except OSError:
            continue
        found |= dict.fromkeys(below[:PLACES] if not _tells(place) else [place])
    return list(found)


def _tells(place: Path) -> bool:
    return any(os.path.lexists(place / name) for name in (STATUS, LINK))


def read(place: Path) -> Run | Site | Unreadable:
    """What one place tells."""
    try:
        if not os.path.lexists(place / STATUS):  # its worker has not come up yet
            return _site({}, place)
        tree = _tree(place / STATUS)
        role = tree.get("role")
        if role not in ("server", "node"):
            raise Nonsense("its role is neither server nor node")
        return _run(tree, place) if role == "server" else _site(tree, place)
    except (OSError, Nonsense) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return Unreadable(_shown(place), f"its status cannot be read: {text(why)}")


def _tree(path: Path) -> dict[str, Any]:
    """The object that a file holds; neither a pipe nor a link elsewhere is followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Nonsense(f"{path.name} is no file")
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Nonsense(f"{path.name} has more than {LARGEST >> 20} MB")
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        raise Nonsense(f"{path.name} is not JSON") from None
    if not isinstance(tree, dict):
        raise Nonsense(f"{path.name} is no object")
    if tree.get("format") != FORMAT or isinstance(tree["format"], bool):
        raise Nonsense(f"{path.name} is of format {tree.get('format')!r}, not {FORMAT}")
    return tree


def _run(tree: dict[str, Any], place: Path) -> Run:
    listed = [taken(item, MEMBER) for item in items(tree.get("nodes"), NODES)]
    names = [item["name"] for item in listed]
    if None in names or len(set(names)) < len(names):
        raise Nonsense("its nodes have no names, or two have the same")
    figures = tree.get("figures") or {}
    if not isinstance(figures, dict):
        raise Nonsense("its figures are no table")
    accuracy = taken(figures, {"accuracy": table(20, 10, share)})["accuracy"]
    return Run(
        place=_shown(place),
        nodes=tuple(Member(**item) for item in listed),
        warnings=_warnings(tree),
        figures=accuracy,
        **taken(tree, RUN),
    )


def _site(tree: dict[str, Any], place: Path) -> Site:
    link = None
    if os.path.lexists(place / LINK):
        link = Link(**taken(_tree(place / LINK), LINKED))
    return Site(place=_shown(place), warnings=_warnings(tree), link=link, **taken(tree, SITE))


def _warnings(tree: dict[str, Any]) -> tuple[Warned, ...]:
    found = items(tree.get("warnings"), 100 * WARNINGS)[-WARNINGS:]
    return tuple(Warned(**taken(item, {"time": seconds, "text": text})) for item in found)


def _shown(place: Path) -> str:
    return str(text(str(place)))
