"""One of Flower's programs in the foreground: its words shown, signals passed on, its end told."""

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Self

from fedpn.flower.deploy.processes import Child

CHATTER = ("INFO", "EXPERIMENTAL", "WARNING :   EXPERIMENTAL")  # of Flower's programs
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Foreground:
    """Stays with programs until it is asked to end; hears which of some phrases they say.

    A quiet one shows what Flower warns of, and not what it says of every message.
    """

    def __init__(self, phrases: Iterable[str] = (), quiet: bool = False) -> None:
        self.asked = False
        self.phrases, self.quiet = tuple(phrases), quiet
        self.heard: set[str] = set()

    def __enter__(self) -> Self:
        self.before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def show(self, child: Child) -> threading.Thread:
        """Begins to show what a program says, as if nothing had been heard before."""
        self.heard = set()
        return self.listen(child)

    def listen(self, child: Child) -> threading.Thread:
        """Begins to show what a program says."""
        thread = threading.Thread(target=self._pump, args=(child,), daemon=True)
        thread.start()
        return thread

    def stay(
        self, child: Child, until: str = "", meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Waits until the program ends, is to end, or has said a phrase."""
        while child.alive and not self.asked and until not in self.heard:
            meanwhile()
            time.sleep(0.1)

    def pause(self, seconds: float) -> None:
        """Waits, unless asked to end."""
        until = time.monotonic() + seconds
        while not self.asked and time.monotonic() < until:
            time.sleep(0.1)

    def _pump(self, child: Child) -> None:
        assert child.process.stdout is not None
        with suppress(ValueError):  # closed meanwhile: who said it is gone
            for raw in child.process.stdout:
                self._hear_line(raw.decode(errors="replace"))

    def _hear_line(self, line: str) -> None:
        self.heard |= {phrase for phrase in self.phrases if phrase in line}
        if not self.quiet or not _COLOUR.sub("", line).startswith(CHATTER):
            sys.stdout.write(line)
            sys.stdout.flush()
