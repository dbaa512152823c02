"""Replies taken from a grid one by one.

Flower's SuperLink forgets replies as it hands them out, and unpacks them afterwards: with one that
cannot be unpacked, all that were asked for at the same time would be lost.
"""

from collections.abc import Mapping
from typing import NamedTuple

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedpn.flower.app.binding import Asked, answers

BROKEN = Error(ErrorCode.MESSAGE_UNAVAILABLE, "its answer cannot be unpacked")
STALE = Error(
    ErrorCode.MESSAGE_UNAVAILABLE,
    "its answer is to another question: it is of an earlier message, or of an older fedpn",
)


class Pulled(NamedTuple):
    """What has come."""

    replies: list[Message]  # one to a question
    broken: dict[str, Error]  # by the numbers of messages: why what came is no reply to them


def pull(grid: Grid, waiting: Mapping[str, Asked]) -> Pulled:
    """The replies to these messages that have come; a node may send anything as its own."""
    found = Pulled([], {})
    for number in sorted(waiting):
        try:
            came = list(grid.pull_messages([number]))
        except httpx.HTTPError:  # of the SuperLink, not of a node
            raise
        except Exception:
            found.broken[number] = BROKEN
            continue
        reply = next((r for r in came if answers(r, number, waiting[number])), None)
        if reply is not None:
            found.replies.append(reply)
        elif came:
            found.broken[number] = STALE
    return found
