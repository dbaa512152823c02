"""Programs that start others: each is started, watched, and taken down with all it started."""

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from uuid import uuid4

# In the environment of a program and of all that it starts: its mark, after those of families that
# it is itself a part of.
MARK = "FEDPN_FAMILY"
GRACE = 10.0  # seconds to end in peace
QUIET_PORTS = range(15_000, 32_000)
_PROC = Path("/proc")
_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None  # not after a fork


class Failure(RuntimeError):  # noqa: N818
    """A program that did not do its part."""


class Child:
    """A program with all that it starts, in a session of its own.

    Flower's programs start others in sessions of their own, so neither a process group nor a
    session tells who belongs together: a mark in the environment does.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        log: Path | None = None,
        mark: str | None = None,
    ) -> None:
        self.name, self.log = name, log
        self.mark = mark or new_mark()
        if log is not None:
            log.touch(mode=0o600)
        words: IO[bytes] | int = subprocess.PIPE if log is None else log.open("ab")
        try:
            self.process = subprocess.Popen(
                command,
                env=dict(variables) | {MARK: f"{variables.get(MARK, '')}/{self.mark}"},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,  # uploads in flight and models are its owner's alone
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        finally:
            if not isinstance(words, int):
                words.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def tail(self, lines: int = 8) -> str:
        """The last words of the log."""
        if self.log is None:
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Waits until the program is ready; fails with its last words."""
        until = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                status = self.process.returncode
                raise Failure(f"{self.name} ended with status {status}:\n{self.tail()}")
            if time.monotonic() > until:
                raise Failure(f"{self.name} was not ready in {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def family(self) -> list[int]:
        """Who of the program and of all that it started still runs."""
        return marked(self.mark)

    def ask_to_end(self) -> None:
        if self.alive:
            self.process.terminate()

    def stop(self, grace: float = GRACE) -> None:
        """Ends the program and all that it started, in peace or else by force."""
        self.ask_to_end()
        until = time.monotonic() + grace
        while (self.alive or self.family()) and time.monotonic() < until:
            if not self.alive:  # those it left behind need not find out by themselves
                _signal(self.family(), signal.SIGTERM)
            time.sleep(0.1)
        self.kill()

    def kill(self) -> None:
        """Ends the program and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        kill(self.mark)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def new_mark() -> str:
    return uuid4().hex


def marked(mark: str) -> list[int]:
    """The processes whose environment holds the mark; empty where the system does not tell."""
    return [int(place.name) for place in _PROC.glob("[0-9]*") if mark in _marks(place)]


def _marks(place: Path) -> list[str]:
    try:
        entries = (place / "environ").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, or another user's
        return []
    name = f"{MARK}=".encode()
    return [m for e in entries if e.startswith(name) for m in e[len(name) :].decode().split("/")]


def kill(mark: str) -> None:
    """Ends all that hold the mark, at once."""
    while family := marked(mark):  # one may have started another meanwhile
        _signal(family, signal.SIGKILL)
        time.sleep(0.02)


def _signal(family: list[int], number: int) -> None:
    for pid in family:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _die_with_parent() -> None:
    """Asks Linux to end this process when its parent is gone, even by kill -9."""
    _LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses now, of those that systems give to no outgoing connection."""
    for port in random.SystemRandom().sample(QUIET_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise Failure("a hundred ports were tried, and all are in use")
