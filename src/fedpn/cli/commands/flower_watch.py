"""fedpn flower status: how a federation stands, as a table, as JSON or on a page."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError

PORT = 8470
PAUSE = 2.0  # seconds between two looks
CLEAR = "\x1b[H\x1b[2J"


def add(family: Any) -> None:
    text = "show how runs and nodes stand, from what they write into their directories"
    option = command(family, "status", _status, text).add_argument
    option(
        "places",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="a run directory, a node's state directory, or one that holds several of them",
    )
    option("--json", action="store_true", help="for programs")
    option("--watch", action="store_true", help="again and again, until Ctrl-C")
    option("--page", action="store_true", help="on a page, for this machine alone, until Ctrl-C")
    option("--port", type=int, metavar="N", help=f"of --page (default: {PORT}; 0: any free one)")


def _status(options: argparse.Namespace) -> int:
    from fedpn.flower.watch import standing, status

    if options.port is not None and not options.page:
        raise UserError("--port goes with --page")
    try:
        if options.page:
            return _page(options.places, PORT if options.port is None else options.port)
        if options.watch:
            return _watch(options.places, options.json)
    except KeyboardInterrupt:  # the way to end both
        return 0
    items, now = status.look(options.places), time.time()
    if not items:
        places = ", ".join(map(str, options.places))
        raise UserError(
            f"nothing in {places} tells of itself (there is no status.json): give the run "
            "directory of fedpn flower run --out, or a node's --state"
        )
    print(_told(items, now, options.json))
    return int(any(standing.is_wrong(item, now) for item in items))


def _told(items: Sequence[Any], now: float, as_json: bool) -> str:
    from fedpn.flower.watch.snapshot import as_tree
    from fedpn.flower.watch.table import show

    if as_json:
        return json.dumps(as_tree(items, now), ensure_ascii=False, allow_nan=False)
    return show(items, now) or "nothing tells of itself yet"


def _watch(places: Sequence[Path], as_json: bool) -> int:
    """Shows what changes; a terminal's is always the newest."""
    from fedpn.flower.watch.status import look

    before: list[Any] | None = None
    while True:
        items = look(places)
        if sys.stdout.isatty() and not as_json:
            print(CLEAR + _told(items, time.time(), as_json), flush=True)
        elif items != before:
            print(_told(items, time.time(), as_json), flush=True)
        before = items
        time.sleep(PAUSE)


def _page(places: Sequence[Path], port: int) -> int:
    from fedpn.flower.watch.page import serve_page

    if not 0 <= port <= 65535:
        raise UserError(f"--port is {port}, but must be between 0 and 65535")
    with serve_page(places, port) as page:
        print(f"{page.address} shows it on this machine alone; Ctrl-C ends it", flush=True)
        while True:
            time.sleep(3600)
