"""Whether a SuperLink answers, what its clock says, and what it shows of itself."""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from fedpn.core.errors import UserError
from fedpn.flower.deploy import health
from fedpn.flower.deploy.home import Connection
from fedpn.flower.doctor.finding import Finding, fail, ok, warn

# Flower refuses a node whose signature is of the future by more than the one, or older than the
# other.
AHEAD, BEHIND = 5.0, 300.0
SUBMIT = "/v1/control/list-runs"
HIDDEN = (401, 403, 404)


def check_link(connection: Connection) -> Iterator[Finding]:
    """A SuperLink as a node, or an operator, reaches it."""
    address = connection.address
    try:
        health.check(*connection)
    except health.NoAnswer as error:
        yield _nobody(connection, str(error))
        return
    except UserError as error:
        yield fail("superlink", str(error), "see docs/operating.md, Faults")
        return
    yield ok("superlink", f"{address} answers" + (", without TLS" if connection.plain else ""))
    yield _clock(connection)
    if not connection.here:
        yield _shown(connection)


def _nobody(connection: Connection, said: str) -> Finding:
    if not connection.here:
        return fail("superlink", said, "start it, or look at the name, the port and the proxy")
    host, port = health.split(connection.address)
    if health.is_taken("127.0.0.1" if host == "localhost" else host, port):
        return fail("superlink", said, f"another program has port {port}: choose another")
    return warn("superlink", f"{said}; the port is free", "fedpn flower superlink starts one")


def _clock(connection: Connection) -> Finding:
    """This machine's clock against that of who answers, to a second."""
    ours, date = min((_asked(connection) for _ in range(3)), key=lambda one: one.took)[1:]
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return ok("clock", "the SuperLink tells no time; the certificates' holds")
    ahead = ours - theirs - 0.5  # a header has whole seconds
    said = (
        f"this clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the SuperLink's"
    )
    way = "set both machines' clocks by the network (timedatectl set-ntp true)"
    if ahead > AHEAD or -ahead > BEHIND:
        return fail("clock", f"{said}: Flower refuses its signatures", way)
    if abs(ahead) > AHEAD / 2:
        return warn("clock", said, way)
    return ok("clock", "is that of the SuperLink, to some seconds")


class _Asked(NamedTuple):
    """One question for the time: the shorter it took, the surer it tells."""

    took: float
    ours: float
    date: str


def _asked(connection: Connection) -> _Asked:
    before = time.time()
    answer = health.ask(connection.address, connection.ca, connection.plain)
    after = time.time()
    return _Asked(after - before, (before + after) / 2, answer.date or "")


def _shown(connection: Connection) -> Finding:
    """Whoever reaches the control interface can submit code: others must not."""
    answer = health.ask(connection.address, connection.ca, connection.plain, SUBMIT)
    if answer.status in HIDDEN:
        return ok("proxy", f"{connection.address} takes no runs")
    return warn(
        "proxy",
        f"whoever reaches {connection.address} can submit a run, which is code for every node",
        "show others /v1/fleet/ and /health alone (docs/flower.md, Who may do what)",
    )
