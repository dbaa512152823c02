"""fedpn join, update and forget: clients that come later, bring new rows, or leave."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import TRUST
from fedpn.core.plain import plain

if TYPE_CHECKING:
    from fedpn.federated.listener import Listener


def add(commands: Any) -> None:
    text = "take a client into a finished run: it gets models, prior and thresholds"
    option = command(commands, "join", _join, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run")
    option("data", metavar="DATA", help="the client's rows: a table, an .npz, a folder of images")
    option("--client", required=True, help="what the client is called")
    option("--out", type=Path, required=True, help="the client's run: a new folder")
    option("--trust", action="store_true", help=TRUST)
    text = "let a client of a finished run learn from new rows, beside those that it had"
    option = command(commands, "update", _update, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run, whose data are still there")
    option("data", metavar="DATA", help="the new rows: a table, an .npz, a folder of images")
    option("--client", required=True, help="whose they are")
    option("--out", type=Path, required=True, help="the client's run: a new folder")
    option("--trust", action="store_true", help=TRUST)
    text = "take a client's rows out of the head of a finished run, exactly"
    option = command(commands, "forget", _forget, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run with a head in closed form")
    option("--client", required=True, help="who leaves")
    option("--out", type=Path, required=True, help="the others' run: a new folder")
    option(
        "--wholly",
        action="store_true",
        help="draw filters and scales again from the others' rows: nothing of the client is left",
    )
    option("--trust", action="store_true", help=TRUST)


def _join(options: argparse.Namespace) -> int:
    from fedpn.runs.membership import join

    name = str(options.client)
    do = partial(join, options.run, options.data, name, options.out)
    if not _whole(options, lambda display: do(display, options.trust)):
        return 130
    print(
        f"client {plain(name)} has joined: {options.out} (try: fedpn predict {options.out} INPUT)"
    )
    return 0


def _update(options: argparse.Namespace) -> int:
    from fedpn.runs.membership import update

    name = str(options.client)
    do = partial(update, options.run, options.data, name, options.out)
    if not _whole(options, lambda display: do(display, options.trust)):
        return 130
    print(f"client {plain(name)} has learned from its new rows: {options.out}")
    return 0


def _forget(options: argparse.Namespace) -> int:
    from fedpn.runs.directory import stored
    from fedpn.runs.membership import forget

    do = partial(forget, options.run, str(options.client), options.out, options.wholly)
    if not _whole(options, lambda display: do(display, options.trust)):
        return 130
    name, rounds = plain(str(options.client)), int(stored(options.run).get("rounds", 0))
    if options.wholly:
        print(f"client {name} is gone, wholly: {options.out}")
        return 0
    rest = (
        f"the encoder's {rounds} rounds still had its rows: train anew to be rid of those"
        if rounds
        else "filters, scales and the gate still had its moments: --wholly draws them again"
    )
    print(f"client {name} is gone from the head: {options.out}; {rest}")
    return 0


def _whole(options: argparse.Namespace, do: Callable[["Listener"], Any]) -> bool:
    """Does it to its end; stopped before, nothing has changed, which is told."""
    from fedpn.cli.console import Display, Interrupt
    from fedpn.federated.listener import Stopped

    try:
        with Interrupt() as interrupt, Display(interrupt) as display:
            do(display)
    except (Stopped, KeyboardInterrupt):
        print(
            f"stopped: {options.run} is as it was and {options.out} is not there; the same command "
            "begins anew",
            file=sys.stderr,
        )
        return False
    return True
