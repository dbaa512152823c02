"""What a warm process keeps from message to message: the data and the network of the run in hand.

A process that answers one message keeps nothing; the worker does (`keep`). One run at a time is
kept, so that a node that serves for months does not grow.
"""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_kept: dict[str, tuple[Any, Any]] | None = None


def keep() -> None:
    """From now on this process keeps what it has made."""
    global _kept
    _kept = {}


def held(kind: str, key: Any, make: Callable[[], T]) -> T:
    """What was made for this key, or is made now in the place of another.

    >>> held("word", 1, lambda: "made")
    'made'
    """
    if _kept is None:
        return make()
    if kind not in _kept or _kept[kind][0] != key:
        _kept.pop(kind, None)  # before the new one is made: both may be large
        _kept[kind] = (key, make())
    found: T = _kept[kind][1]
    return found
