"""Status files: small JSON that a run or a node replaces as it goes, for those who watch."""

import contextlib
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

FORMAT = 1
FILE, LINK = "status.json", "link.json"
MOST = 50  # warnings that are kept
LONGEST = 500  # characters of one


def write_status(path: Path, tree: dict[str, Any]) -> None:
    """Replaces a status file, for its owner's eyes; one that cannot be written stops nobody."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **tree}, file, ensure_ascii=False)
        draft.replace(path)


def read_status(path: Path) -> dict[str, Any]:
    """What a status file says; nothing where it is missing or damaged."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


class Warnings:
    """The last warnings, with their times."""

    def __init__(self) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=MOST)

    def add(self, text: str) -> None:
        self.kept.append({"time": time.time(), "text": text[:LONGEST]})

    def tree(self) -> list[dict[str, Any]]:
        return list(self.kept)
