"""Directories of a node and of a run: whose, how full, who is at work there, what was left."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.doctor.finding import Finding, fail, ok, warn
from fedpn.flower.doctor.machine import check_room
from fedpn.flower.status import FILE, LINK
from fedpn.flower.watch.standing import note, state_of
from fedpn.flower.watch.status import Unreadable, read

Found = Iterator[Finding]


def check_state(place: Path, now: float) -> Found:
    """What a node keeps."""
    if not place.exists():
        yield from _check_parent("state", place)
        yield check_room("state", place)
        return
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        way = "give it to the user that runs the node"
        yield fail("state", f"{place} is not a directory that can be written here", way)
        return
    if place.stat().st_mode & 0o077:
        yield warn("state", f"{place} can be used by others", f"chmod 700 {place}")
    else:
        yield ok("state", f"{place} is its owner's alone")
    yield check_room("state", place)
    holder = is_held(place / "node.lock")
    yield ok("lock", f"a node is at work in {place}" if holder else f"no node runs in {place}")
    yield from _check_status(place, now)
    yield _check_model(place)


def check_out(place: Path, now: float) -> Found:
    """What a run writes, on the SuperLink's machine."""
    if not place.exists():
        yield from _check_parent("out", place)
    elif not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        way = "give it to the user that runs the SuperLink"
        yield fail("out", f"{place} is not a directory that can be written here", way)
        return
    else:
        yield _check_run(place)
        yield from _check_status(place, now)
    yield check_room("out", place)


def _check_parent(what: str, place: Path) -> Found:
    near = next(p for p in place.absolute().parents if p.exists())
    if os.access(near, os.W_OK | os.X_OK):
        yield ok(what, f"{place} is not there yet, and can be made")
    else:
        way = f"make {place} for the user that runs this"
        yield fail(what, f"{place} is not there, and {near} cannot be written", way)


def _check_run(place: Path) -> Finding:
    if is_held(place / ".lock"):
        return ok("out", f"a run is at work in {place}")
    if (place / "metrics.json").exists():
        return ok("out", f"{place} holds a finished run: another run needs another --out")
    if not (place / "config.toml").exists():
        return ok("out", f"{place} holds no run")
    from fedpn.federated.checkpoint import rounds_done

    try:
        done = rounds_done(place)
    except UserError as error:
        return fail("out", str(error), "take another --out")
    return warn("out", f"{place} holds a run that ended after {done} rounds", "go on by --resume")


def _check_status(place: Path, now: float) -> Found:
    if not any((place / name).exists() for name in (FILE, LINK)):
        return
    found = read(place)
    if isinstance(found, Unreadable):
        yield warn("status", f"{place}: {found.why}", "delete it: it is written anew")
        return
    state = state_of(found, now)
    said = ", ".join(filter(None, [state, note(found, now)]))
    if state in ("failed", "gone", "refused"):
        yield fail("status", said, "fedpn flower status tells more; docs/operating.md, Faults")
    else:
        yield ok("status", said)
    if found.warnings:
        said = f"{len(found.warnings)} warnings, the last: {found.warnings[-1].text}"
        yield warn("status", said, "fedpn flower status shows them")


def _check_model(place: Path) -> Finding:
    """Whether the node could answer now."""
    if not os.path.lexists(place / "bundle"):  # before PyTorch is loaded
        return ok("model", "there is none yet: a run makes it")
    from fedpn.serving.bundle import open_bundle

    try:
        bundle = open_bundle(place, trust=False)
    except UserError as error:
        return fail("model", str(error), "restore --state from its backup, or train anew")
    made = bundle.about.provenance
    return ok("model", f"answers ({made.get('algorithm')}, by fedpn {made.get('fedpn')})")


def is_held(path: Path) -> bool:
    """Whether a process holds a lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
