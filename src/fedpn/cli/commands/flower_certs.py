"""fedpn flower certs: certificates and keys of a federation, made, extended, rotated."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import told
from fedpn.core.errors import UserError


def add(family: Any) -> None:
    text = "make the certificates and keys of a federation, a directory for each machine"
    option = command(family, "certs", told(_certs), text).add_argument
    option("place", type=Path, metavar="DIR")
    option("--nodes", type=int, metavar="N", help="how many nodes (of --extend: as many as before)")
    option(
        "--host",
        action="append",
        default=[],
        metavar="NAME|IP",
        help="by which nodes reach the SuperLink; several may be given (localhost always is)",
    )
    option("--days", type=int, default=365, help="of the server's certificate (default: 365)")
    option(
        "--extend",
        action="store_true",
        help="keep the authority and the keys in DIR; renew the server's, add what is missing",
    )
    option(
        "--rotate",
        metavar="NODE|server|authority",
        help="a new key in the place of one that may have been seen, or is about to end",
    )


def _certs(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy import certs, rotation

    place, nodes = options.place, options.nodes
    if options.rotate is not None:
        if options.extend or nodes is not None:
            raise UserError("--rotate goes without --extend and --nodes: it adds nobody")
        print(rotation.rotate(place, options.rotate, options.host, options.days))
        return
    if nodes is None and not options.extend:
        raise UserError("--nodes is missing: how many nodes will there be?")
    nodes = certs.there_are(place) if nodes is None else nodes
    make = certs.extend if options.extend else certs.make
    make(place, nodes, options.host, options.days)
    print(
        f"{place}/ca.key      keep it off line: it signs the next server's certificate\n"
        f"{place}/superlink   goes to the SuperLink: fedpn flower superlink --certs superlink\n"
        f"{place}/node-0      goes to the first node, and so on to node-{nodes - 1}:\n"
        "    fedpn flower supernode --superlink HOST:PORT --certs node-0 --state DIR …"
    )
