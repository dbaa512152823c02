"""Who may ask, and how much: tokens, hosts, sizes; before any route is reached."""

import asyncio
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from fedpn.core.errors import UserError
from fedpn.service.counters import Counters
from fedpn.service.limits import Limits, TooLarge

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPEN = ("/", "/healthz", "/readyz")  # the page itself holds nothing; it asks for the token
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


ASKING = "/v1/predict"  # the route that takes large bodies
SMALL = 64 * 2**10  # bytes of other requests
ADDRESSES = 10_000  # whose wrong tokens are remembered


class Late(Exception):  # noqa: N818
    """A body does not come."""


def check_token(token: str) -> None:
    """Refuse a secret that no header can carry."""
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise UserError(
            "the token has a sign that is no ASCII, a line break, or a space at an end, which a "
            "header cannot carry: use letters, digits and signs such as - and _"
        )


class Mistakes:
    """Wrong tokens by address: some at once, then few a second.

    >>> mistakes = Mistakes(burst=2, per_second=0.5)
    >>> for _ in range(2):
    ...     mistakes.count("192.0.2.1", now=0.0)
    >>> mistakes.wait("192.0.2.1", now=0.0), mistakes.wait("192.0.2.1", now=2.0)
    (2.0, 0.0)
    """

    def __init__(self, burst: int, per_second: float) -> None:
        self.burst, self.per_second = burst, per_second
        self._until: OrderedDict[str, float] = OrderedDict()  # when all will be forgotten

    def wait(self, address: str, now: float) -> float:
        """The seconds until another token of this address is looked at."""
        behind = self._until.get(address, now) - now - (self.burst - 1) / self.per_second
        return max(behind, 0.0)

    def count(self, address: str, now: float) -> None:
        until = max(self._until.pop(address, now), now) + 1 / self.per_second
        self._until[address] = until
        if len(self._until) > ADDRESSES:
            self._until.popitem(last=False)


class Guard:
    """Middleware: refuses strangers and floods, and counts what passes."""

    def __init__(self, app: Any, token: str, limits: Limits, counters: Counters) -> None:
        self.app, self.token, self.limits, self.counters = app, token, limits, counters
        self.mistakes = Mistakes(limits.mistakes, limits.mistakes_per_second)

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
        most = self.limits.body if scope["path"] == ASKING else SMALL
        address = network((scope.get("client") or ("",))[0])
        refusal = self.refuse(scope["path"], headers, most, address)
        try:
            if refusal:
                await say(watched, *refusal)
            else:
                await self.app(scope, self._bounded(receive, most), watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.counters.requested(route, status, time.perf_counter() - began)

    def refuse(
        self, path: str, headers: dict[str, str], most: int, address: str
    ) -> tuple[int, str] | None:
        """The status and the sentence with which a request is refused, if it is."""
        if not self.token and _host(headers.get("host", "")) not in LOOPBACK:
            # A page of somebody else's may make a browser ask by another name of this machine.
            return 403, "without a token this service answers on this machine alone"
        origin = headers.get("origin")  # "null" is that of pages in a sandbox
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return 403, "pages of other sites may not ask"
        if self.token and path not in OPEN:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            now = time.monotonic()
            if given and self.mistakes.wait(address, now):
                return 429, "too many wrong tokens came from this address; try again"
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                if given:
                    self.mistakes.count(address, now)
                return 401, "a token is needed: Authorization: Bearer …"
        size = headers.get("content-length", "0")
        if not size.isdigit() or int(size[:20]) > most:
            return 413, too_many_bytes(most)
        return None

    def _bounded(self, receive: Receive, most: int) -> Receive:
        """A body that comes in time, though it may be longer than its head says, or say nothing."""
        seen, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self.limits.seconds

        async def bounded() -> dict[str, Any]:
            nonlocal seen, complete
            if complete:  # what comes now is that the caller has gone
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise Late(f"the request did not come within {self.limits.seconds:g} s") from None
            seen += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if seen > most:
                raise TooLarge(too_many_bytes(most))
            return message

        return bounded


def too_many_bytes(most: int) -> str:
    return f"a request may have at most {most} bytes"


def network(address: str) -> str:
    """Whose an address is: of IPv6 somebody has 2⁶⁴ of them.

    >>> network("192.0.2.1"), network("2001:db8::7"), network("somewhere")
    ('192.0.2.1', '2001:db8::/64', 'somewhere')
    """
    if ":" not in address:
        return address
    try:
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


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


async def say(send: Send, status: int, words: str) -> None:
    """Send a problem before any route is reached."""
    body = json.dumps({"error": words}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 429:
        head.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
