"""Requests to end, heard like Ctrl-C, and held back where something must be done whole."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Hears SIGTERM as Ctrl-C is heard, so that what was begun is ended in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def whole() -> Iterator[None]:
    """What is begun inside is done whole; who interrupts is heard after it."""
    heard = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt
