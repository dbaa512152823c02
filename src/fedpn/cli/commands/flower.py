"""fedpn flower: the same algorithms on a federation of machines."""

import argparse
import socket
import tempfile
from pathlib import Path
from typing import Any

from fedpn.cli.commands import (
    flower_certs,
    flower_doctor,
    flower_init,
    flower_node,
    flower_operate,
    flower_run,
    flower_watch,
)
from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import add_connection, say, told
from fedpn.core.errors import UserError

PORT = 8000


def add(commands: Any) -> None:
    parser = commands.add_parser("flower", help="run on a federation of machines, with Flower")
    family = parser.add_subparsers(metavar="COMMAND", required=True)
    flower_init.add(family)
    flower_certs.add(family)
    _add_superlink(family)
    _add_register(family)
    _add_supernode(family)
    flower_run.add(family)
    flower_watch.add(family)
    flower_operate.add(family)
    flower_doctor.add(family)
    flower_node.add(family)


def _add_superlink(family: Any) -> None:
    text = "run a SuperLink, which nodes and runs come to"
    option = command(family, "superlink", told(_superlink), text).add_argument
    option("--certs", type=Path, metavar="DIR", help="its part of `fedpn flower certs`")
    option("--host", default="127.0.0.1", help="where it listens (default: this machine alone)")
    option("--port", type=_port, default=PORT, help=f"(default: {PORT})")
    option(
        "--database",
        type=Path,
        default=Path("superlink.db"),
        metavar="FILE",
        help="what it remembers of nodes and runs (default: superlink.db)",
    )


def _superlink(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy.link import serve
    from fedpn.flower.deploy.programs import link_files

    files = None if options.certs is None else link_files(options.certs)
    serve(options.host, options.port, files, options.database, say)


def _add_register(family: Any) -> None:
    text = "let more nodes in, by their public keys"
    option = command(family, "register", told(_register), text).add_argument
    option("keys", type=Path, nargs="+", metavar="KEY.pub")
    add_connection(option)


def _register(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy import control, health, home, members

    for key in options.keys:
        if not key.is_file():
            raise UserError(f"no key file {key}")
    connection = home.find(options.superlink, options.ca)
    health.check(connection.address, connection.ca, connection.plain)
    with tempfile.TemporaryDirectory() as scratch:
        place = home.write_home(Path(scratch), connection)
        for key in options.keys:
            new = control.register(place, key.resolve())
            if not new and not members.is_known(place, key):
                raise UserError(
                    f"{key} was barred, which is for good: give the node a new key "
                    f"(fedpn flower certs DIR --rotate {key.stem})"
                )
            print(f"{key.stem}: {'registered' if new else 'was registered already'}")


def _add_supernode(family: Any) -> None:
    text = "run a SuperNode beside the data of one client"
    option = command(family, "supernode", told(_supernode), text).add_argument
    option("--superlink", required=True, metavar="HOST:PORT")
    option("--certs", type=Path, metavar="DIR", help="the node's part of `fedpn flower certs`")
    option("--key", type=Path, metavar="FILE", help="its key, where that lies elsewhere")
    option(
        "--state", type=Path, required=True, metavar="DIR", help="what the node keeps: back it up"
    )
    option("--data", type=Path, metavar="PATH", help="the node's own data")
    option("--partition", type=int, metavar="I", help="for trials: part I of the config's dataset")
    option("--of", type=int, metavar="N", help="of how many parts")
    option("--name", help="how reports call it (default: the directory of --certs, or the host)")
    option("--secure", action="store_true", help="upload under a mask only, whatever a run asks")
    option("--port", type=_port, help="between the node's own programs (default: any free one)")
    option("--patience", type=float, default=90.0, metavar="SECONDS", help="to be let in")


def _supernode(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy import health, home, node
    from fedpn.flower.deploy.programs import node_files

    if options.key is not None and options.certs is None:
        raise UserError("--key goes with --certs: a node that proves who it is needs TLS")
    files = None if options.certs is None else node_files(options.certs, options.key)
    health.split(options.superlink)
    connection = home.find(options.superlink, files and files.ca)
    facts = _facts(options)
    node.serve(
        connection, files, options.port, facts, options.state, say, patience=options.patience
    )


def _facts(options: argparse.Namespace) -> dict[str, str | int]:
    """What a node tells its app of itself."""
    certs = options.certs and options.certs.resolve().name
    facts: dict[str, str | int] = {"name": options.name or certs or socket.gethostname()}
    if options.secure:
        facts["secure"] = 1
    if (options.data is None) == (options.partition is None):
        raise UserError("a node needs --data PATH, or for trials --partition I --of N")
    if options.data is not None:
        if not options.data.exists():
            raise UserError(f"--data {options.data} is not there")
        return facts | {"data": str(options.data.resolve())}
    if options.of is None or not 0 <= options.partition < options.of:
        raise UserError(
            f"--partition {options.partition} --of {options.of}: parts are counted from 0 to N − 1"
        )
    return facts | {"partition-id": options.partition, "num-partitions": options.of}


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 1 to 65535")
    return int(text)
