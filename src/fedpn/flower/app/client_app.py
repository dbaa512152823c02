"""Flower's ClientApp, called by a node's worker; what is heavy is imported when it is needed."""

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpn.flower.app.binding import echo

app = ClientApp(mods=[echo])
MASKS = "secaggplus_configs"  # Flower's record in a message that plays the protocol of masks


@app.query("introduce")
def introduce(message: Message, context: Context) -> Message:
    return _answer(message, context, "introduce")


@app.query("alive")
def alive(message: Message, context: Context) -> Message:
    """Tells nothing but that all that was asked before is answered, or lost."""
    return Message(RecordDict(), reply_to=message)


def secure(message: Message, context: Context, call: Callable[..., Message]) -> Message:
    """Masks uploads in rounds that ask for it."""
    if MASKS not in message.content.config_records:
        return call(message, context)
    from fedpn.flower.app.secure import masked

    return masked(message, context, call)


@app.train(mods=[secure])
def train(message: Message, context: Context) -> Message:
    return _answer(message, context, "play")


@app.train("sum")
def sum_up(message: Message, context: Context) -> Message:
    return _answer(message, context, "play")


@app.train("personalise")
def personalise(message: Message, context: Context) -> Message:
    return _answer(message, context, "personalise")


def _answer(message: Message, context: Context, act: str) -> Message:
    from fedpn.flower.app import client

    told = client.answer(message.content, context.node_config, getattr(client, act))
    return Message(told, reply_to=message)
