"""One of Flower's programs in the foreground: its words shown, signals passed on, its end told."""

import signal
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Self

from fedpn.flower.deploy.processes import Child

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Foreground:
    """Stays with programs until it is asked to end; hears which of some phrases they say."""

    def __init__(self, phrases: Iterable[str] = ()) -> None:
        self.asked = False
        self.phrases = tuple(phrases)
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
        """Begins to show what a program says."""
        self.heard = set()
        thread = threading.Thread(target=self._pump, args=(child,), daemon=True)
        thread.start()
        return thread

    def stay(self, child: Child, until: str = "") -> None:
        """Waits until the program ends, is to end, or has said a phrase."""
        while child.alive and not self.asked and until not in self.heard:
            time.sleep(0.1)

    def pause(self, seconds: float) -> None:
        """Waits, unless asked to end."""
        until = time.monotonic() + seconds
        while not self.asked and time.monotonic() < until:
            time.sleep(0.1)

    def _pump(self, child: Child) -> None:
        assert child.process.stdout is not None
        for raw in child.process.stdout:
            line = raw.decode(errors="replace")
            self.heard |= {phrase for phrase in self.phrases if phrase in line}
            sys.stdout.write(line)
            sys.stdout.flush()
