"""A page, its JSON and its metrics on this machine alone, by the standard library.

It binds to 127.0.0.1 and needs no token: whoever is on the machine may look, and nobody else. A
page of another site could make a browser ask by another name of this machine, so names are checked.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from socketserver import TCPServer
from typing import Any, NamedTuple, Self

from fedpn.core.errors import UserError
from fedpn.flower.watch.metrics import metrics
from fedpn.flower.watch.snapshot import as_tree
from fedpn.flower.watch.status import Run, Site, Unreadable, look

HOST = "127.0.0.1"
# With any port: a tunnel may have another than ours.
OURS = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
FRESH = 0.5  # seconds for which what was read is good enough
SECONDS = 10.0  # for a request to come in
STATIC = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answer(NamedTuple):
    """What a request gets."""

    status: HTTPStatus
    kind: str
    body: bytes


class Page:
    """A page that is served in the background until it is stopped."""

    def __init__(self, places: Sequence[Path], port: int) -> None:
        try:
            self._server = _Server((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"port {port} of {HOST} cannot be served: {reason}; choose another"
            ) from None
        self._server.watched = _Watched(places)
        self.address = f"http://{HOST}:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def serve_page(places: Sequence[Path], port: int) -> Page:
    """Serves what some places tell, on this machine alone; port 0 is any free one."""
    return Page(places, port)


class _Watched:
    """What was read last, so that many who ask cost one reading."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places, self._lock = tuple(places), threading.Lock()
        self._time, self._items = float("-inf"), list[Run | Site | Unreadable]()

    def items(self) -> list[Run | Site | Unreadable]:
        with self._lock:
            if time.monotonic() - self._time > FRESH:
                self._items, self._time = look(self._places), time.monotonic()
            return self._items


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    watched: _Watched

    def server_bind(self) -> None:
        """Binds without asking anybody for this machine's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away in the middle of an answer is no news."""


def _status(items: list[Run | Site | Unreadable]) -> Answer:
    text = json.dumps(as_tree(items, time.time()), ensure_ascii=False, allow_nan=False)
    return Answer(HTTPStatus.OK, "application/json", text.encode())


def _metrics(items: list[Run | Site | Unreadable]) -> Answer:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Answer(HTTPStatus.OK, kind, metrics(items, time.time()).encode())


LIVE: dict[str, Callable[[list[Run | Site | Unreadable]], Answer]] = {
    "/status.json": _status,
    "/metrics": _metrics,
}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "fedpn", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        answer = self._refusal() or self._answer(self.path.partition("?")[0])
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, path: str) -> Answer:
        if path in STATIC:
            name, kind = STATIC[path]
            file = resources.files("fedpn.flower.watch") / "static" / name
            return Answer(HTTPStatus.OK, kind, file.read_bytes())
        if path in LIVE:
            return LIVE[path](self.server.watched.items())
        return _words(HTTPStatus.NOT_FOUND, "there are /, /status.json and /metrics")

    def _refusal(self) -> Answer | None:
        """Refuses who asks by another name of this machine, and pages of other sites."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not OURS.fullmatch(hosts[0]):
            return _words(
                HTTPStatus.FORBIDDEN, "this page is that of 127.0.0.1 and localhost alone"
            )
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            return _words(HTTPStatus.FORBIDDEN, "pages of other sites may not ask")
        return None

    def end_headers(self) -> None:
        for name, value in SAFE.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page that asks every two seconds is no news."""


def _words(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())
