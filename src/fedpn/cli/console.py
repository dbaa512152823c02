"""How far a run has come: a live display on a terminal, plain lines elsewhere."""

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedpn.core.pace import rate, time_left
from fedpn.core.plain import plain
from fedpn.federated.listener import Listener

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STAGES = {
    "federate": "federated rounds",
    "personalise": "personal stage",
    "route": "routers",
    "calibrate": "rules",
    "survey": "survey",
    "gram": "sums of features",
    "choose": "ridge and temperature",
    "own head": "heads of their own",
    "change": "sums of features",
    "look at rows": "what rows look like",
    "spread of rows": "what rows look like",
    "limit of rows": "what rows look like",
    "copies": "rows that several clients have",
    "pool": "held-out rows",
    "evaluate": "evaluation",
    "unseen": "unseen clients",
    "report": "report",
}
UNITS = {"federate": "rounds"}  # what a stage counts; the others count steps or clients
SECONDS = 5.0  # between two plain lines


def _name(stage: str) -> str:
    """
    >>> _name("gram + spread of rows")
    'sums of features'
    """
    return STAGES.get(stage.partition(" + ")[0], plain(stage))


def _fact(name: str, value: float) -> str:
    """
    >>> _fact("loss", 0.5), _fact("left out", 2)
    ('loss 0.500', 'left out 2')
    """
    return f"{plain(name)} {value}" if isinstance(value, int) else f"{plain(name)} {value:.3f}"


class Interrupt:
    """Ctrl-C or SIGTERM once asks a run to stop after its round; twice stops it at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> Self:
        self.before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("finishing the round; Ctrl-C again stops at once", file=sys.stderr, flush=True)


class Display(Listener):
    """Shows how far a run has come."""

    def __init__(self, stopping: Callable[[], bool] = lambda: False) -> None:
        self.stopping = stopping  # type: ignore[method-assign]
        self.live = sys.stderr.isatty()
        self.began: dict[str, float] = {}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        self.shown = 0.0
        self.tasks: dict[str, TaskID] = {}
        self.bars = Progress(
            TextColumn("{task.description:<17}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}  {task.fields[facts]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self.live,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bars.stop()

    def say(self, text: str) -> None:
        """Prints a line above the display; control characters in it are shown, not obeyed."""
        self.bars.console.print(plain(text), highlight=False, markup=False, soft_wrap=True)

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        now = time.monotonic()
        if done < self.last.get(stage, 0):  # another run of the same stages
            self.began.pop(stage)
            self.first.pop(stage)
        self.last[stage] = done
        began = self.began.setdefault(stage, now)
        played = done - self.first.setdefault(stage, done)
        words = [_fact(name, value) for name, value in facts.items() if value is not None]
        pace = rate(played, now - began, UNITS.get(stage, ""))
        words += [pace] if pace else []
        if self.live:
            if stage not in self.tasks:
                for task in self.tasks.values():
                    self.bars.update(task, completed=self.bars.tasks[task].total)
                self.tasks[stage] = self.bars.add_task(_name(stage), total=of, facts="")
            self.bars.update(self.tasks[stage], completed=done, total=of, facts="  ".join(words))
        elif now - self.shown > SECONDS or done == of or now == began:
            self.shown = now
            if pace and done < of:
                words.append(time_left(now - began, played / (played + of - done)))
            count = f" {done}/{of}" if done else ""
            print(
                "  ".join([f"{_name(stage)}{count}", *words]),
                file=sys.stderr,
                flush=True,
            )
