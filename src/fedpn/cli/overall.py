"""How far many jobs have come: one bar with the time left, a line for each that ends."""

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedpn.core.pace import time_left
from fedpn.core.plain import plain
from fedpn.runs.studies.scheduler import Job

EVERY = 30.0  # seconds between plain lines


class Overall:
    """Hears of jobs (`scheduler.Hear`) and shows how much of all is done."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.total = sum(job.weight for job in jobs)
        self.count = len(jobs)
        self.share: dict[str, float] = {}
        self.ended = 0
        self.began = self.shown = time.monotonic()
        self.live = sys.stderr.isatty()
        self.progress = Progress(
            TextColumn("{task.fields[words]}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %  {task.fields[left]}"),
            console=Console(stderr=True),
            disable=not self.live,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        self.bar = self.progress.add_task("", total=max(self.total, 1e-9), words="", left="")
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, job: Job, done: float, words: str = "") -> None:
        # Of stages that take turns, a job never goes back.
        self.share[job.name] = max(done * job.weight, self.share.get(job.name, 0.0))
        if words:
            self.ended += 1
            line = plain(f"{job.name}: {words}")
            self.progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
        over = sum(self.share.values())
        left = time_left(time.monotonic() - self.began, over / max(self.total, 1e-9))
        count = f"{self.ended} of {self.count} done"
        self.progress.update(self.bar, completed=over, words=count, left=left)
        now = time.monotonic()
        if not self.live and now - self.shown > EVERY:
            self.shown = now
            print(f"{count}  {100 * over / self.total:.0f} %  {left}", file=sys.stderr, flush=True)
