"""What is installed, and how much room there is."""

import platform
import shutil
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from fedpn.core.extras import hint
from fedpn.core.settings import read_toml
from fedpn.flower.doctor.finding import Finding, fail, ok, warn
from fedpn.flower.watch.words import size

LITTLE, TOO_LITTLE = 10**9, 10**8  # bytes


def check_versions() -> Iterator[Finding]:
    """fedpn, Python, PyTorch and Flower; all machines of a federation need the same fedpn."""
    yield ok("python", platform.python_version())
    for name, wanted in {"fedpn": "", "torch": _wanted("torch"), "flwr": _flower()}.items():
        try:
            there = version(name)
        except PackageNotFoundError:
            yield fail(name, "is not installed", hint("flwr"))
            continue
        if wanted and not _is_within(there, wanted):
            yield fail(name, f"{there} is not {wanted}", f"pip install '{name}{wanted}'")
        else:
            yield ok(name, there + (f" ({wanted})" if wanted else ""))


def _flower() -> str:
    """The versions of Flower that the thin app takes."""
    app = resources.files("fedpn.flower") / "thin" / "pyproject.toml"
    with resources.as_file(app) as path:
        names: list[str] = read_toml(path)["project"]["dependencies"]
    return next(name.removeprefix("flwr") for name in names if name.startswith("flwr"))


def _wanted(name: str) -> str:
    found = [line for line in requires("fedpn") or [] if line.startswith(name) and ";" not in line]
    return found[0].removeprefix(name) if found else ""


def _is_within(there: str, wanted: str) -> bool:
    """
    >>> _is_within("1.41.0", ">=1.40,<1.42"), _is_within("1.9.2", ">=1.40,<1.42")
    (True, False)
    >>> _is_within("2.13.0+cpu", "<3,>=2.13")
    True
    """
    have = _numbers(there)
    for part in wanted.split(","):
        bound = _numbers(part.lstrip("<>= "))
        if part.startswith(">=") and have < bound:
            return False
        if part.startswith("<") and not part.startswith("<=") and have >= bound:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.partition("+")[0].split(".")
    return tuple(int("".join(c for c in part if c.isdecimal()) or 0) for part in parts)


def check_room(what: str, place: Path) -> Finding:
    """How much a disk still holds."""
    near = next(p for p in (place.absolute(), *place.absolute().parents) if p.exists())
    free = shutil.disk_usage(near).free
    said = f"{size(free)} are free for {place}"
    if free < TOO_LITTLE:
        return fail(what, said, "make room: models and checkpoints need some hundred MB")
    if free < LITTLE:
        return warn(what, said, "make room before it is full")
    return ok(what, said)
