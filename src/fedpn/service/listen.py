"""How a service listens: so many connections, each of which soon says what it wants."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedpn.service.limits import Limits

HEAD = 64 * 2**10  # bytes of headers
FULL = b'{"error": "too many connections; try again"}'
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(FULL), FULL)
)


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed where headers do not come, or others need its place.

    When there are too many, the one goes that has sent no whole request for the longest time.
    """

    def __init__(self, limits: Limits, most: int, **parts: Any) -> None:
        super().__init__(**parts)
        self.limits, self.most = limits, most
        self.since, self.come = 0.0, 0  # when it began to wait for headers, and bytes since
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) <= self.most:
            return
        others = [c for c in self.connections if c.is_unfinished and c is not self]
        if others:
            min(others, key=lambda c: c.since).drop()
        else:
            self.transport.write(REFUSAL)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif self.is_idle:
            if self.deadline is None:
                self._await_head()
            self.come += len(data)
            # A body that is refused early still comes; of two parsers one has no bound of its own.
            refused = self.cycle is not None and self.cycle.more_body
            if self.come > HEAD + (self.limits.body if refused else 0):
                self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(error)

    @property
    def is_idle(self) -> bool:
        """Whether no request is at work."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_unfinished(self) -> bool:
        """Whether a whole request has yet to come."""
        return self.is_idle or self.cycle.more_body

    def drop(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _await_head(self) -> None:
        self.since, self.come = self.loop.time(), 0
        self.deadline = self.loop.call_later(self.limits.head, self.drop)

    def _stop_waiting(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class Server(uvicorn.Server):
    """Waits for TLS handshakes no longer than for headers."""

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self.patience = patience

    async def startup(self, sockets: Any = None) -> None:
        loop: Any = asyncio.get_running_loop()
        if self.config.is_ssl:
            loop.create_server = functools.partial(
                loop.create_server, ssl_handshake_timeout=self.patience
            )
        await super().startup(sockets)


def make_server(
    app: Callable[..., Awaitable[None]],
    host: str,
    port: int,
    limits: Limits | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Server:
    """A server that answers at an address; `run` does so until the process is asked to end."""
    limits = limits or Limits()
    most = min(limits.connections, _files() // 2)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=functools.partial(Connection, limits, most),  # type: ignore[arg-type]
        loop="asyncio" if certificate else "auto",
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=30,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return Server(config, limits.head)


def _files() -> int:
    """How many files this process may have open: as many as the system lets it, within reason."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
