"""Who may ask, and how much: tokens, hosts, sizes; before any route is reached."""

import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from fedpn.service.counters import Counters

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPEN = ("/", "/healthz", "/readyz")  # the page itself holds nothing; it asks for the token
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class TooLarge(Exception):  # noqa: N818
    """A request has more bytes than are taken."""


class Guard:
    """Middleware: refuses strangers and floods, and counts what passes."""

    def __init__(self, app: Any, token: str, most: int, counters: Counters) -> None:
        self.app, self.token, self.most, self.counters = app, token, most, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def watched(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *SAFE]
            await send(message)

        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        refusal = self.refuse(scope["path"], headers)
        try:
            if refusal:
                await _say(watched, *refusal)
            else:
                await self.app(scope, self._counted(receive), watched)
        except TooLarge:
            await _say(watched, 413, f"a request may have at most {self.most} bytes")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counters.requested(route, status, time.perf_counter() - began)

    def refuse(self, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """The status and the sentence with which a request is refused, if it is."""
        if not self.token and _host(headers.get("host", "")) not in LOOPBACK:
            # A page of somebody else's may make a browser ask by another name of this machine.
            return 403, "without a token this service answers on this machine alone"
        origin = headers.get("origin")  # "null" is that of pages in a sandbox
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return 403, "pages of other sites may not ask"
        given = headers.get("authorization", "").removeprefix("Bearer ")
        is_open = path in OPEN or not self.token
        if not is_open and not hmac.compare_digest(given.encode(), self.token.encode()):
            return 401, "a token is needed: Authorization: Bearer …"
        size = headers.get("content-length", "0")
        if not size.isdigit() or int(size[:20]) > self.most:
            return 413, f"a request may have at most {self.most} bytes"
        return None

    def _counted(self, receive: Receive) -> Receive:
        """A body may be longer than its head says, or say nothing."""
        seen = 0

        async def counted() -> dict[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.most:
                raise TooLarge
            return message

        return counted


def _host(text: str) -> str:
    """
    >>> _host("127.0.0.1:8080"), _host("[::1]:80"), _host("[")
    ('127.0.0.1', '::1', '')
    """
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""


SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'unsafe-inline'; "
        b"img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
]


async def _say(send: Send, status: int, words: str) -> None:
    import json

    body = json.dumps({"error": words}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
