"""Values of a status file, taken only where they are of their kind: the file may be anybody's."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpn.core.plain import plain

LONGEST = 300  # characters of a text
LARGEST = 2**53  # beyond it, other programs that read JSON round
LATEST = 1e11  # seconds: a time in the year 5138

Read = Callable[[Any], Any]


class Nonsense(ValueError):  # noqa: N818
    """A value that no federation writes."""


def text(value: Any) -> str | None:
    r"""A text, cut where it is long, with nothing in it that moves a cursor.

    >>> text("st-anna\x1b[2J")
    'st-anna\\x1b[2J'
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise Nonsense("is not a text")
    whole = plain(value[: LONGEST + 1])
    return whole if len(whole) <= LONGEST else whole[: LONGEST - 1] + "…"


def whole(value: Any) -> int | None:
    """A whole number from 0 on."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise Nonsense("is not a whole number from 0 on")
    return value


def process(value: Any) -> int | None:
    """The number of a process."""
    number = whole(value)
    if number == 0:
        raise Nonsense("is no process")
    return number


def number(value: Any) -> float | None:
    """A number; the loss of a model that diverged is none, or too large, and so unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Nonsense("is not a number")
    return float(value) if -LARGEST <= value <= LARGEST else None


def seconds(value: Any) -> float | None:
    """A length of time, or a time since 1970."""
    found = number(value)
    if found is not None and not 0 <= found <= LATEST:
        raise Nonsense("is not a time")
    return found


def flag(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise Nonsense("is neither true nor false")
    return value


def one_of(*names: str) -> Read:
    """One of some words."""

    def read(value: Any) -> str | None:
        if value is not None and value not in names:
            raise Nonsense(f"is none of {', '.join(names)}")
        return None if value is None else str(value)

    return read


def share(value: Any) -> float | None:
    """A number from 0 to 1."""
    found = number(value)
    if found is not None and not 0 <= found <= 1:
        raise Nonsense("is not a share from 0 to 1")
    return found


def table(rows: int, columns: int, cell: Read) -> Read:
    """Named rows of named values, at most so many."""

    def read(value: Any) -> dict[str, dict[str, Any]]:
        found = _names(value, rows)
        return {
            str(text(row)): {str(text(key)): cell(v) for key, v in _names(cells, columns).items()}
            for row, cells in found.items()
        }

    return read


def _names(value: Any, most: int) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > most:
        raise Nonsense(f"is not a table of at most {most} names")
    return value


def items(value: Any, most: int) -> Sequence[dict[str, Any]]:
    """A list of objects; what is missing is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise Nonsense(f"is not a list of at most {most}")
    if not all(isinstance(item, dict) for item in value):
        raise Nonsense("holds what is no object")
    return value


def taken(tree: dict[str, Any], kinds: Mapping[str, Read]) -> dict[str, Any]:
    """The values of an object by their kinds; those that are missing are unknown."""
    found = {}
    for key, read in kinds.items():
        try:
            found[key] = read(tree.get(key))
        except Nonsense as error:
            raise Nonsense(f"its {key} {error}") from None
    return found
