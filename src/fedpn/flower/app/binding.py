"""Replies bound to their questions: each carries a number that was drawn for one message alone.

A reply to another message (of an earlier round, another phase or run, or to another node) does not
count, whatever it holds; nor does a second one to the same.
"""

import secrets
from typing import NamedTuple

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

NONCE = "nonce"
EMPTY = "question"  # the record of a message that has no other
BYTES = 16


class Asked(NamedTuple):
    """A message under way, and its number."""

    message: Message
    nonce: str


def bind(message: Message) -> Asked:
    """Draws a number for a message, which takes it along."""
    nonce = secrets.token_hex(BYTES)
    message.content = _marked(message.content, nonce)
    return Asked(message, nonce)


def answers(reply: Message, number: str, asked: Asked) -> bool:
    """Whether a reply is to this message, which has the number `number` with Flower."""
    if reply.metadata.reply_to_message_id != number:
        return False
    if reply.has_error():  # Flower's own, often; they do not tell of which node they are
        return True
    node = asked.message.metadata.dst_node_id
    return reply.metadata.src_node_id == node and _take(reply.content) == asked.nonce


def echo(message: Message, context: Context, call: ClientAppCallable) -> Message:
    """A node's side: the number comes back with the answer."""
    nonce = _take(message.content)
    reply = call(message, context)
    if nonce and not reply.has_error():
        reply.content = _marked(reply.content, nonce)
    return reply


def _marked(content: RecordDict, nonce: str) -> RecordDict:
    """The same with a number, in its first record of values: Flower sends each record by itself.

    Records are copied, for several messages may share them.
    """
    marked = RecordDict(dict(content))
    name, record = next(iter(content.config_records.items()), (EMPTY, ConfigRecord()))
    marked[name] = ConfigRecord({**record, NONCE: nonce})
    return marked


def _take(content: RecordDict) -> str:
    """The number that came with a message, which has it no longer; "" where there is none."""
    found = [record.pop(NONCE) for record in content.config_records.values() if NONCE in record]
    content.pop(EMPTY, None)
    return found[0] if len(found) == 1 and isinstance(found[0], str) else ""
