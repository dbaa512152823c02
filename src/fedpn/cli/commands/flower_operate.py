"""fedpn flower stop and fedpn flower unregister: what an operator asks of a SuperLink."""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import add_connection, told
from fedpn.core.errors import UserError
from fedpn.core.plain import plain

SECONDS = 60.0  # for a run to end
BARRED = (
    "a key is barred for good, as long as the SuperLink keeps its database; delete it from "
    "superlink/nodes too, for a new database would let it in"
)


def add(family: Any) -> None:
    text = "stop a run; fedpn flower run --resume goes on with it"
    option = command(family, "stop", told(_stop), text).add_argument
    option("run", nargs="?", metavar="RUN", help="its number (default: the one in flight)")
    add_connection(option)
    text = "bar nodes from a SuperLink; without a name, tell who is registered"
    option = command(family, "unregister", told(_unregister), text).add_argument
    option("nodes", nargs="*", metavar="NODE", help="by name, by number, or by its KEY.pub")
    add_connection(option)


@contextmanager
def _home(options: argparse.Namespace) -> Iterator[Path]:
    """A home for Flower's tools that knows the SuperLink, which answers."""
    from fedpn.flower.deploy import health, home

    connection = home.find(options.superlink, options.ca)
    health.check(connection.address, connection.ca, connection.plain)
    with tempfile.TemporaryDirectory() as scratch:
        yield home.write_home(Path(scratch), connection)


def _stop(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy import control
    from fedpn.flower.deploy.processes import Failure

    if options.run is not None and not options.run.isdecimal():
        raise UserError(f"RUN is {options.run!r}, but must be the number that Flower gave the run")
    with _home(options) as home:
        going = control.going(home)
        run = options.run or _only(going)
        if run not in going:
            raise UserError(f"no run {run} is in flight there; {_runs(going)}")
        control.stop(home, run)
        until = time.monotonic() + SECONDS
        while not control.status(home, run)[0].startswith("finished"):
            if time.monotonic() > until:
                raise Failure(f"run {run} was asked to stop and has not in {SECONDS:.0f} s")
            time.sleep(1.0)
    print(f"stopped run {run}; fedpn flower run … --resume goes on with it")


def _only(going: list[str]) -> str:
    if len(going) != 1:
        raise UserError(f"say which RUN to stop: {_runs(going)}")
    return going[0]


def _runs(going: list[str]) -> str:
    return f"in flight are {', '.join(going)}" if going else "none is in flight"


def _unregister(options: argparse.Namespace) -> None:
    from fedpn.core.aligned import aligned
    from fedpn.flower.deploy import control
    from fedpn.flower.deploy.members import find, members

    with _home(options) as home:
        listed = members(home)
        for member in [find(asked, listed) for asked in options.nodes]:  # all, or none is barred
            control.unregister(home, member.number)
            print(f"{plain(member.name or str(member.number))} is barred ({member.key})")
    if not options.nodes:
        rows = [(plain(m.name), str(m.number), m.state, m.key) for m in listed]
        print("\n".join(aligned([("name", "number", "state", "key"), *rows], texts=4)))
    else:
        print(BARRED)
