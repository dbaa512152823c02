"""Decisions are written by a thread of its own, so that answers never wait for a database."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from fedpn.service.decisions import UNREACHABLE, Decisions, Row

MOST = 256  # callers' decisions that are written at once
Entry = tuple[Sequence[Row], "Future[list[int]]"]


class Unkept(Exception):  # noqa: N818
    """Decisions cannot be written now."""


class Writer:
    """Writes what was decided, all that waits at once; tells the numbers, or `Unkept`.

    Its queue is bounded by its caller, who counts inputs until they are told. `after` is called
    when something was written, and says whether that was the last.
    """

    def __init__(self, decisions: Decisions, after: Callable[[bool], None]) -> None:
        self.decisions, self.after = decisions, after
        self.entries: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="fedpn-decisions", daemon=True)
        self.thread.start()

    def submit(self, rows: Sequence[Row]) -> "Future[list[int]]":
        done: Future[list[int]] = Future()
        self.entries.put((rows, done))
        return done

    def close(self, seconds: float) -> None:
        """Writes what was taken."""
        self.entries.put(None)
        self.thread.join(timeout=seconds)

    def _work(self) -> None:
        ended = False
        while not ended:
            taken = [self.entries.get()]
            while len(taken) < MOST and not self.entries.empty():
                taken.append(self.entries.get())
            ended = None in taken
            self._write([entry for entry in taken if entry is not None])
            with contextlib.suppress(*UNREACHABLE):  # what is not written now is written later
                self.after(ended)

    def _write(self, taken: Sequence[Entry]) -> None:
        try:
            numbers = iter(self.decisions.keep([row for rows, _ in taken for row in rows]))
        except UNREACHABLE:
            for _, done in taken:
                done.set_exception(Unkept())
        except Exception as error:
            if len(taken) == 1:
                taken[0][1].set_exception(error)
            else:  # one of them cannot be written; the others can
                for entry in taken:
                    self._write([entry])
        else:
            for rows, done in taken:
                done.set_result([next(numbers) for _ in rows])
