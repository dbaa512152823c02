"""Whether a SuperLink answers, and what is wrong where it does not."""

import errno
import http.client
import ipaddress
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from fedpn.core.errors import UserError

SECONDS = 5.0
AWAY = (502, 503, 504)  # what a proxy says for one who is not there


class NoAnswer(UserError):  # noqa: N818
    """Nobody answers there, perhaps not yet."""


def check(address: str, ca: Path | None, plain: bool) -> None:
    """Asks a SuperLink, or node, for its health."""
    status = ask(address, ca, plain).status
    if status in AWAY:
        raise NoAnswer(f"no SuperLink answers behind the proxy at {address} ({status})")
    if status != http.client.OK:
        raise UserError(f"what listens at {address} is no SuperLink (its /health is {status})")


class Answer(NamedTuple):
    """What somebody says who answers."""

    status: int
    date: str | None  # as he has it


def ask(address: str, ca: Path | None, plain: bool, path: str = "/health") -> Answer:
    """Asks a SuperLink, and tells what is wrong where it cannot be asked."""
    host, port = split(address)
    try:
        return _get(host, port, None if plain else _context(ca), path)
    except ssl.SSLCertVerificationError as error:
        whose = f"by {ca}" if ca else "by this machine's authorities (give its own with --ca)"
        raise UserError(
            f"the certificate of {address} is not to be trusted {whose}: {error.verify_message}"
        ) from None
    except ssl.SSLError as error:
        raise UserError(f"{address} does not speak TLS ({error.reason or error})") from None
    except http.client.HTTPException:
        hint = " (if it wants TLS, give its certificate)" if plain else ""
        raise UserError(f"what listens at {address} is no SuperLink{hint}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise NoAnswer(f"no SuperLink answers at {address}: {reason}") from None


def answers(address: str, ca: Path | None, plain: bool) -> bool:
    """Tells whether somebody answers."""
    try:
        check(address, ca, plain)
    except NoAnswer:
        return False
    return True


def _get(host: str, port: int, context: ssl.SSLContext | None, path: str) -> Answer:
    connection = (
        http.client.HTTPConnection(host, port, timeout=SECONDS)
        if context is None
        else http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheader("Date"))
    finally:
        connection.close()


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except FileNotFoundError:
        raise UserError(f"no certificate file {ca}") from None
    except OSError as error:
        raise UserError(f"{ca} is not a certificate in PEM form: {error}") from None


def split(address: str) -> tuple[str, int]:
    """Takes HOST:PORT apart.

    >>> split("link.example:8000")
    ('link.example', 8000)
    >>> split("[::1]:8000")
    ('::1', 8000)
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    right = colon and bare and "/" not in address and (":" not in bare or host.startswith("["))
    if not right or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise UserError(f"{address!r} is not of the form HOST:PORT, such as 127.0.0.1:8000")
    return bare, int(port)


def is_here(host: str) -> bool:
    """Tells whether a host is this machine, out of others' reach.

    >>> is_here("localhost"), is_here("127.0.0.1"), is_here("0.0.0.0"), is_here("10.0.0.5")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_taken(host: str, port: int) -> bool:
    """Tells whether somebody listens on a port already; refuses a host that is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            raise UserError(f"--host {host!r} is not known here") from None
        except PermissionError:
            raise UserError(f"--port {port} is only for root; take one above 1023") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise UserError(f"--host {host!r} is no address of this machine") from None
    return False
