"""Messages out and replies in: asked for often, so that a round does not wait for a clock, and
weighed, so that one knows what a round costs."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedpn.flower.app.binding import bind
from fedpn.flower.app.lost import Doubts
from fedpn.flower.app.pulling import pull
from fedpn.flower.weigh import weigh

LOST = Error(ErrorCode.NODE_UNAVAILABLE, "it was started anew, and lost what it was asked")
PAUSE = 0.3  # seconds between two looks for replies; Flower's own would be 3


class Post(Grid):
    """A grid that looks for replies more often than Flower's own, and counts bytes by node."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.seconds: dict[int, float] = {}  # that each node's last reply took
        self.seen: dict[int, float] = {}  # when each node last said something

    def exchange(self, messages: Sequence[Message], seconds: float | None) -> list[Message]:
        """Sends messages, and returns the replies that come in time."""
        asked = [bind(message) for message in messages]
        for message in messages:
            self.sent[message.metadata.dst_node_id] += weigh(message.content)
        began = time.monotonic()
        numbers = self.grid.push_messages(messages)
        # Of messages that are too large Flower returns no numbers at all.
        waiting = {number: a for number, a in zip(numbers, asked, strict=False) if number}
        doubts, replies = Doubts(self.grid), list[Message]()
        while waiting:
            # Whoever is there now has answered before, if ever; so this is asked first.
            there = doubts.poll(a.message.metadata.dst_node_id for a in waiting.values())
            found = pull(self.grid, waiting)
            for reply in found.replies:
                del waiting[reply.metadata.reply_to_message_id]
                self._note(reply, time.monotonic() - began)
                replies.append(reply)
            for number, error in found.broken.items():
                replies.append(Message(error, reply_to=waiting.pop(number).message))
            for number, (message, _) in list(waiting.items()):
                if message.metadata.dst_node_id in there:
                    replies.append(Message(LOST, reply_to=waiting.pop(number).message))
            if not waiting or (seconds is not None and time.monotonic() - began > seconds):
                break
            time.sleep(PAUSE)
        return replies

    def _note(self, reply: Message, seconds: float) -> None:
        if reply.has_error():
            return
        node = reply.metadata.src_node_id
        self.received[node] += weigh(reply.content)
        self.seconds[node], self.seen[node] = seconds, time.time()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """As Flower's protocol of masks calls it."""
        return self.exchange(list(messages), timeout)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self.grid.pull_messages(message_ids)

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)
