"""Replies taken from a grid one by one.

Flower's SuperLink forgets replies as it hands them out, and unpacks them afterwards: with one that
cannot be unpacked, all that were asked for at the same time would be lost.
"""

from collections.abc import Iterable
from typing import NamedTuple

import httpx
from flwr.app import Message
from flwr.serverapp import Grid


class Pulled(NamedTuple):
    """What has come."""

    replies: list[Message]
    broken: list[str]  # the numbers of messages whose replies cannot be unpacked


def pull(grid: Grid, numbers: Iterable[str]) -> Pulled:
    """The replies to these messages that have come; a node may send anything as its own."""
    found = Pulled([], [])
    for number in sorted(numbers):
        try:
            found.replies.extend(grid.pull_messages([number]))
        except httpx.HTTPError:  # of the SuperLink, not of a node
            raise
        except Exception:
            found.broken.append(number)
    return found
