"""Flower without a network: a Grid that calls the real ClientApp in this process.

What passes is turned into Flower's wire format and back, and kept for inspection. `TaskIdentity`
and the serialisers are not public; this is the one place that touches them.
"""

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.app.error import Error
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedpn.flower.app.client_app import app

SERVER = 1


class LocalGrid(Grid):
    """Nodes of a federation, by number; `nodes[number]` is a node's config."""

    def __init__(self, nodes: dict[int, dict[str, Any]]) -> None:
        self.nodes = nodes
        self.sent: list[tuple[str, int, RecordDict]] = []  # to clients: kind, node, content
        self.heard: list[tuple[str, int, RecordDict]] = []  # from clients
        self.contexts: dict[int, Context] = {}
        self.posted: dict[str, list[Message]] = {}  # replies that wait to be pulled
        self.spoil: Callable[[str, int, RecordDict], RecordDict | None] = lambda k, n, c: c
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = 7, SERVER, 9

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            number = f"message-{len(self.posted)}"
            message.metadata.__dict__["_message_id"] = number
            self.posted[number] = self.send_and_receive([message])
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for number in message_ids for reply in self.posted.pop(number, [])]

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = []
        for message in messages:
            number, kind = message.metadata.dst_node_id, message.metadata.message_type
            if number not in self.nodes:
                replies.append(Message(Error(code=3, reason="node unavailable"), reply_to=message))
                continue
            self.sent.append((kind, number, wired(message.content)))
            fresh = Context(7, number, dict(self.nodes[number]), RecordDict(), {})
            context = self.contexts.setdefault(number, fresh)
            asked = Message(wired(message.content), dst_node_id=number, message_type=kind)
            reply = app(asked, context)
            content = self.spoil(kind, number, wired(reply.content))
            if content is None:
                replies.append(Message(Error(code=3, reason="node vanished"), reply_to=message))
                continue
            self.heard.append((kind, number, content))
            answer = Message(content, reply_to=message)
            replies.append(answer)
        return replies


def wired(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(recorddict_to_proto(content))


def wire_bytes(content: RecordDict) -> bytes:
    """What passes on the wire."""
    return recorddict_to_proto(content).SerializeToString()
