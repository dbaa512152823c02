"""A node's own models, one version after the other: no run takes the last good one away.

`models/0001`, `models/0002`, … are whole and are never changed; `bundle` is a link to the one that
answers. Each step is one rename, so that a kill between any two leaves a model that answers.
"""

import os
import re
import shutil
from pathlib import Path

from fedpn.core import store
from fedpn.core.errors import UserError

BUNDLE, MODELS = "bundle", "models"
KEPT = 5  # versions
_VERSION = re.compile(r"\d{4,}")


def versions(home: Path) -> list[str]:
    """The versions that are there, the oldest first."""
    place = home / MODELS
    found = [p.name for p in place.iterdir()] if place.is_dir() else []
    return sorted((name for name in found if _VERSION.fullmatch(name)), key=int)


def current(home: Path) -> str | None:
    """The version that answers, where one does."""
    link = home / BUNDLE
    return link.readlink().name if link.is_symlink() else None


def publish(home: Path, draft: Path) -> str:
    """Makes a drafted model the next version, and lets it answer."""
    mend(home)
    (home / MODELS).mkdir(mode=0o700, exist_ok=True)
    known = versions(home)
    name = f"{int(known[-1]) + 1 if known else 1:04}"
    draft.rename(home / MODELS / name)
    store.sync(home / MODELS)
    _point(home, name)
    for old in versions(home)[:-KEPT]:
        shutil.rmtree(home / MODELS / old, ignore_errors=True)
    return name


def rollback(home: Path, version: str = "") -> str:
    """Lets an older version answer again: the one before, or the one that is named."""
    mend(home)
    known, now = versions(home), current(home)
    older = [name for name in known if now is None or int(name) < int(now)]
    if version and version not in known:
        told = ", ".join(known) or "none"
        raise UserError(f"there is no version {version!r} of this node's model; there are {told}")
    if not version and not older:
        raise UserError("there is no older version of this node's model to go back to")
    chosen = version or older[-1]
    store.verify(home / MODELS / chosen, ["bundle.json"])
    _point(home, chosen)
    return chosen


def mend(home: Path) -> None:
    """Finishes what a kill has left half done, and takes in a model of an older fedpn."""
    link = home / BUNDLE
    if link.is_dir() and not link.is_symlink():
        (home / MODELS).mkdir(mode=0o700, exist_ok=True)
        known = versions(home)
        name = f"{int(known[-1]) + 1 if known else 1:04}"
        link.rename(home / MODELS / name)
        _point(home, name)
    elif not link.exists() and versions(home):
        _point(home, versions(home)[-1])


def _point(home: Path, name: str) -> None:
    """Has the link point to a version, at once."""
    draft = home / f".{BUNDLE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    draft.symlink_to(Path(MODELS) / name)
    draft.replace(home / BUNDLE)
    store.sync(home)
