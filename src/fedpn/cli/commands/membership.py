"""fedpn join, update and forget: clients that come later, bring new rows, or leave."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError
from fedpn.core.plain import plain

TRUST = "run the code that this run names (an algorithm, a router, a rule or a head of one's own)"


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


def _join(options: argparse.Namespace) -> None:
    from fedpn.cli.console import Display, Interrupt
    from fedpn.runs.membership import join

    _refuse_code(options)
    name = str(options.client)
    with Interrupt() as interrupt, Display(interrupt) as display:
        join(options.run, options.data, name, options.out, display)
    print(
        f"client {plain(name)} has joined: {options.out} (try: fedpn predict {options.out} INPUT)"
    )


def _update(options: argparse.Namespace) -> None:
    from fedpn.cli.console import Display, Interrupt
    from fedpn.runs.membership import update

    _refuse_code(options)
    name = str(options.client)
    with Interrupt() as interrupt, Display(interrupt) as display:
        update(options.run, options.data, name, options.out, display)
    print(f"client {plain(name)} has learned from its new rows: {options.out}")


def _forget(options: argparse.Namespace) -> None:
    from fedpn.cli.console import Display, Interrupt
    from fedpn.runs.directory import stored
    from fedpn.runs.membership import forget

    _refuse_code(options)
    with Interrupt() as interrupt, Display(interrupt) as display:
        forget(options.run, str(options.client), options.out, options.wholly, display)
    name, rounds = plain(str(options.client)), int(stored(options.run).get("rounds", 0))
    if options.wholly:
        print(f"client {name} is gone, wholly: {options.out}")
        return
    rest = (
        f"the encoder's {rounds} rounds still had its rows: train anew to be rid of those"
        if rounds
        else "filters, scales and the gate still had its moments: --wholly draws them again"
    )
    print(f"client {name} is gone from the head: {options.out}; {rest}")


def _refuse_code(options: argparse.Namespace) -> None:
    """What a run names is not run unless it is trusted."""
    from fedpn.core.settings import named_code
    from fedpn.runs.directory import stored

    code = named_code(stored(options.run))
    if code and not options.trust:
        raise UserError(
            f"{options.run} names code of its own ({', '.join(code.values())}), which would be "
            "run; if you know where it comes from, add --trust"
        )
