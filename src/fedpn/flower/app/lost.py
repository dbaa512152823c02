"""Messages that nobody will answer, found before patience ends.

A node that is killed and comes back at once has lost what it had in hand, and Flower tells of it
only where somebody looked while the node was away. A node answers in the order in which it is
asked: who answers a later question, and not the earlier, has lost the earlier.
"""

import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpn.flower.app.binding import Asked, bind
from fedpn.flower.app.pulling import pull

ALIVE = "query.alive"
DOUBT = 30.0  # seconds of silence until the first such question; then twice as many, and so on


class Doubts:
    """Asks nodes that say nothing whether they are there; of use for one exchange of messages."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.pause = grid, DOUBT
        self.due = time.monotonic() + DOUBT
        self.asked: dict[str, Asked] = {}  # questions under way

    def poll(self, silent: Iterable[int]) -> set[int]:
        """The nodes that have answered such a question; asks those that are silent, when due."""
        there = {_node(self.asked[number]) for number in self._pull()}
        self.asked = {n: asked for n, asked in self.asked.items() if _node(asked) not in there}
        if time.monotonic() > self.due:
            self._ask(sorted(silent))
        return there

    def _pull(self) -> list[str]:
        found = pull(self.grid, self.asked)
        for number in found.broken:  # no answer; it is asked again
            del self.asked[number]
        return [r.metadata.reply_to_message_id for r in found.replies if not r.has_error()]

    def _ask(self, nodes: list[int]) -> None:
        questions = [bind(Message(RecordDict(), n, ALIVE)) for n in nodes]
        numbers = self.grid.push_messages([asked.message for asked in questions])
        self.asked |= {n: asked for n, asked in zip(numbers, questions, strict=False) if n}
        self.pause *= 2
        self.due = time.monotonic() + self.pause


def _node(asked: Asked) -> int:
    return asked.message.metadata.dst_node_id
