"""Several jobs at a time, a process each: what fails is told and does not stop the others."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Protocol

from fedpn.core.errors import UserError
from fedpn.federated.listener import Listener, Stopped

# How much of a run is over when a stage begins, and what its own steps add.
STAGES = {
    "federate": (0.0, 0.85),
    "personalise": (0.85, 0.1),
    "route": (0.95, 0.005),
    "calibrate": (0.955, 0.005),
    "evaluate": (0.96, 0.02),
    "report": (0.98, 0.02),
}
OTHERS = (0.85, 0.1)  # such as the sums of a head
TICK = 0.5  # seconds between looks


@dataclass(frozen=True)
class Job:
    """Something to do that takes a while."""

    name: str
    do: Callable[[Listener], Any]  # goes to another process: a plain function with its arguments
    weight: float = 1.0  # what it costs, compared with others
    needs: frozenset[str] = frozenset()  # names of jobs without which it cannot be done
    after: frozenset[str] = frozenset()  # names of jobs that come first, however they end


class Hear(Protocol):
    """Hears of jobs: `done` goes from 0 to 1; `words` say how one ended."""

    def __call__(self, job: Job, done: float, words: str = "") -> None: ...


def play(
    jobs: Sequence[Job], workers: int, hear: Hear, stop: Callable[[], bool], threads: int = 1
) -> dict[str, str]:
    """Does the jobs in their order, so many at a time, each with so many threads.

    Returns what went wrong, by name.
    """
    waiting, running = list(jobs), dict[Job, tuple[BaseProcess, Connection]]()
    over, wrong, asked = set[str](), dict[str, str](), False
    names = {job.name for job in jobs}

    def end(job: Job, words: str, failed: bool) -> None:
        over.add(job.name)
        if failed:
            wrong[job.name] = words
        hear(job, 1.0, words)

    try:
        while waiting or running:
            if stop() and not asked:
                asked = True
                waiting.clear()
                _ask(running)
            for job in [job for job in waiting if job.needs & set(wrong)]:
                waiting.remove(job)
                end(job, f"needs {', '.join(sorted(job.needs & set(wrong)))}, which failed", True)
            for job in _ready(waiting, over, names, workers - len(running)):
                waiting.remove(job)
                running[job] = _start(job, threads)
            for job, words, failed in _watch(running, hear):
                del running[job]
                end(job, words, failed)
    finally:
        for process, _ in running.values():
            process.terminate()
    return wrong


def _ready(waiting: list[Job], over: set[str], names: set[str], room: int) -> list[Job]:
    return [job for job in waiting if not ((job.needs | job.after) & names) - over][:room]


def play_here(jobs: Sequence[Job], hear: Hear, stop: Callable[[], bool]) -> dict[str, str]:
    """Does the jobs one after the other in this process; returns what went wrong, by name.

    For jobs that need what only this process has, such as data in memory.
    """
    wrong = dict[str, str]()
    for job in jobs:
        if stop():
            break
        words, failed = _end(job, Here(job, hear, stop))
        if failed:
            wrong[job.name] = words
        hear(job, 1.0, words)
    return wrong


def _start(job: Job, threads: int) -> tuple[BaseProcess, Connection]:
    # A server that has loaded PyTorch forks workers at once; elsewhere each loads it anew.
    context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload(["fedpn.runs.studies.tuned"])
    ours, theirs = context.Pipe()
    # The server has the environment in which it was started; the worker takes that of now.
    now = dict(os.environ)
    process = context.Process(target=_work, args=(job, theirs, threads, now), name=job.name)
    with _without_main():
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def _without_main() -> Iterator[None]:
    """Workers need nothing of the script that began them; without this, each would run it again."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _watch(
    running: dict[Job, tuple[BaseProcess, Connection]], hear: Hear
) -> Iterator[tuple[Job, str, bool]]:
    """Passes on what workers say; yields those that ended, how, and whether they failed."""
    there = set(wait([pipe for _, pipe in running.values()], TICK))
    for job, (process, pipe) in list(running.items()):
        if pipe not in there:
            continue
        end = None
        try:
            while end is None and pipe.poll():
                done, end = pipe.recv()
                hear(job, done)
        except EOFError:
            process.join()
            end = f"its process ended with status {process.exitcode}", True
        if end is not None:
            process.join()
            yield job, *end


def _ask(running: dict[Job, tuple[BaseProcess, Connection]]) -> None:
    for _, pipe in running.values():
        with suppress(ConnectionError):
            pipe.send("stop")


def share_done(stage: str, done: int, of: int) -> float:
    """How much of a run is over.

    >>> share_done("federate", 5, 10), share_done("evaluate", 0, 4)
    (0.425, 0.96)
    """
    start, share = STAGES.get(stage, OTHERS)
    return start + share * done / max(of, 1)


class Speaker(Listener):
    """Passes on to the scheduler how far a job has come; asked to stop, it says so."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        self.pipe.send((share_done(stage, done, of), None))

    def stopping(self) -> bool:
        return self.pipe.poll()


class Here(Listener):
    """The same of a job in this process."""

    def __init__(self, job: Job, hear: Hear, stop: Callable[[], bool]) -> None:
        self.job, self.hear, self.stop = job, hear, stop

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        self.hear(self.job, share_done(stage, done, of))

    def stopping(self) -> bool:
        return self.stop()


def _work(job: Job, pipe: Connection, threads: int, environment: dict[str, str]) -> None:
    """A worker's life: its threads, one job; asked to stop, it finishes its round."""
    os.environ.clear()
    os.environ.update(environment)
    import torch

    from fedpn.core.allocator import keep_freed_memory

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; the pipe tells
    torch.set_num_threads(threads)
    keep_freed_memory()
    end = _end(job, Speaker(pipe))
    with suppress(ConnectionError):  # who asked for it may be gone
        pipe.send((1.0, end))


def _end(job: Job, listener: Listener) -> tuple[str, bool]:
    """Does a job; tells how it ended, and whether it failed."""
    try:
        job.do(listener)
    except Stopped as stopped:
        return f"stopped {stopped}", False
    except UserError as error:  # a sentence as it stands
        return str(error), True
    except Exception as error:
        return f"{type(error).__name__}: {error}", True
    return "done", False
