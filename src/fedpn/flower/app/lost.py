"""Messages that nobody will answer, found before patience ends.

A node that is killed and comes back at once has lost what it had in hand, and Flower tells of it
only where somebody looked while the node was away. A node answers in the order in which it is
asked: who answers a later question, and not the earlier, has lost the earlier.
"""

import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpn.flower.app.pulling import pull

ALIVE = "query.alive"
DOUBT = 30.0  # seconds of silence until the first such question; then twice as many, and so on


class Doubts:
    """Asks nodes that say nothing whether they are there; of use for one exchange of messages."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.pause = grid, DOUBT
        self.due = time.monotonic() + DOUBT
        self.asked: dict[str, int] = {}  # questions under way: the node of each

    def poll(self, silent: Iterable[int]) -> set[int]:
        """The nodes that have answered such a question; asks those that are silent, when due."""
        there = {self.asked[number] for number in self._pull()}
        self.asked = {number: node for number, node in self.asked.items() if node not in there}
        if time.monotonic() > self.due:
            self._ask(sorted(silent))
        return there

    def _pull(self) -> list[str]:
        found = pull(self.grid, self.asked)
        for number in found.broken:  # no answer; it is asked again
            del self.asked[number]
        return [r.metadata.reply_to_message_id for r in found.replies if not r.has_error()]

    def _ask(self, nodes: list[int]) -> None:
        questions = [Message(RecordDict(), dst_node_id=n, message_type=ALIVE) for n in nodes]
        numbers = self.grid.push_messages(questions)
        self.asked |= {n: node for n, node in zip(numbers, nodes, strict=False) if n}
        self.pause *= 2
        self.due = time.monotonic() + self.pause
