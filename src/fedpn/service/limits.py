"""What a service takes at most, and how long it waits: set once, when it starts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on what callers may ask for."""

    body: int = 32 * 2**20  # bytes of a request
    rows: int = 4096  # inputs of a request
    memory: int = 768 * 2**20  # bytes of all requests that are read or answered, and their answers
    waiting: int = 16_384  # inputs of all requests that are not answered yet; decisions not written
    batch: int = 256  # inputs that are answered at once
    linger: float = 0.004  # seconds to wait for other callers' inputs
    seconds: float = 30.0  # for a request to be answered in, and for its body to come
    connections: int = 512  # that are open
    head: float = 10.0  # seconds for a TLS handshake, and for the headers of a request
    mistakes: int = 20  # wrong tokens from one address at once; then `mistakes_per_second`
    mistakes_per_second: float = 5.0


class Overfull(Exception):  # noqa: N818
    """A request takes memory that others hold now."""


class TooLarge(Exception):  # noqa: N818
    """A request takes more than any may; the text says what."""


class Lease:
    """One request's part of the memory."""

    def __init__(self, memory: "Memory") -> None:
        self.memory, self.held = memory, 0

    def hold(self, bytes_: int) -> None:
        """Reserve so many bytes in all, before they are taken."""
        if bytes_ > self.held:
            self.memory.take(bytes_ - self.held, bytes_)
            self.held = bytes_


class Memory:
    """Bytes that requests reserve before they take them.

    >>> memory = Memory(100)
    >>> with memory.lease() as lease:
    ...     lease.hold(60)
    ...     memory.held
    60
    >>> memory.held
    0
    """

    def __init__(self, most: int) -> None:
        self.most, self.held, self._lock = most, 0, threading.Lock()

    def take(self, more: int, all_: int) -> None:
        if all_ > self.most:
            needed, most = -(-all_ >> 20), self.most >> 20
            raise TooLarge(
                f"this request would take {needed} MB of memory, and all may take {most} MB "
                "together: send its inputs in several"
            )
        with self._lock:
            if self.held + more > self.most:
                raise Overfull
            self.held += more

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        lease = Lease(self)
        try:
            yield lease
        finally:
            with self._lock:
                self.held -= lease.held
