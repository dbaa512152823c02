"""Who hears of a run, and may ask it to stop."""

from collections.abc import Sequence
from pathlib import Path


class Listener:
    """Hears of a run; this one hears nothing. Override what you want to hear."""

    def begin(self, out: Path) -> None:
        """A run begins to write into a directory."""

    def phase(self, name: str) -> None:
        """A phase begins: rounds, sums over all clients, or each client's own work."""

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        """A stage has come so far."""

    def round(self, number: int, numbers: dict[str, float]) -> None:
        """A round is over; these are its numbers."""

    def say(self, text: str) -> None:
        """Something is worth knowing."""

    def stopping(self) -> bool:
        """Asked after each round: whether the run shall stop, its state saved."""
        return False

    def end(self) -> None:
        """The run is over, well or not."""


class Listeners(Listener):
    """Several that hear the same."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners

    def begin(self, out: Path) -> None:
        for listener in self.listeners:
            listener.begin(out)

    def phase(self, name: str) -> None:
        for listener in self.listeners:
            listener.phase(name)

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        for listener in self.listeners:
            listener.progress(stage, done, of, **facts)

    def round(self, number: int, numbers: dict[str, float]) -> None:
        for listener in self.listeners:
            listener.round(number, numbers)

    def say(self, text: str) -> None:
        for listener in self.listeners:
            listener.say(text)

    def stopping(self) -> bool:
        return any(listener.stopping() for listener in self.listeners)

    def end(self) -> None:
        for listener in self.listeners:
            listener.end()


class Announcing(Listeners):
    """Says a sentence when the run begins, once it is clear that it can."""

    def __init__(self, listeners: Sequence[Listener], sentence: str) -> None:
        super().__init__(listeners)
        self.sentence = sentence

    def begin(self, out: Path) -> None:
        if self.sentence:
            self.say(self.sentence)
        super().begin(out)


class Stopped(Exception):  # noqa: N818
    """A run that was asked to stop, after it saved its state."""
