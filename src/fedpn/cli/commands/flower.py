"""fedpn flower: the same algorithms on a federation of machines."""

import argparse
import socket
import tempfile
from pathlib import Path
from typing import Any

from fedpn.cli.commands import flower_run
from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import add_connection, say, told
from fedpn.core.errors import UserError

PORT = 8000


def add(commands: Any) -> None:
    parser = commands.add_parser("flower", help="run on a federation of machines, with Flower")
    family = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_init(family)
    _add_certs(family)
    _add_superlink(family)
    _add_register(family)
    _add_supernode(family)
    flower_run.add(family)


def _add_init(family: Any) -> None:
    text = "make a directory with a config to edit and the app that Flower distributes"
    option = command(family, "init", told(_init), text).add_argument
    option("place", type=Path, metavar="DIR")
    option("--dataset", default="digits", help="a named set, or what nodes call their own data")
    option("--algorithm", default="fedpn", help="see `fedpn algorithms` (default: fedpn)")
    option("--clients", type=int, default=3, metavar="N", help="how many nodes (default: 3)")
    option("--rounds", type=int, default=20, help="federated rounds (default: 20)")
    option("--set", action="append", default=[], metavar="KEY=VALUE")


def _init(options: argparse.Namespace) -> None:
    from fedpn.core.settings import parse_setting
    from fedpn.core.store import write_toml
    from fedpn.flower.deploy.launch import write_app
    from fedpn.flower.deploy.place import fresh
    from fedpn.runs.config import resolve, to_tree

    chosen = {
        name: getattr(options, name) for name in ("dataset", "algorithm", "clients", "rounds")
    }
    config = resolve([chosen, *(parse_setting(text) for text in options.set)])
    place = fresh(options.place)
    write_app(place)
    write_toml(place / "fedpn.toml", to_tree(config))
    print(
        f"edit {place}/fedpn.toml, then:\n"
        f"    fedpn flower run {place}/fedpn.toml --superlink HOST:PORT --out DIR\n"
        "a module of your own beside it, such as an algorithm's, travels with the run to all nodes"
    )


def _add_certs(family: Any) -> None:
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


def _certs(options: argparse.Namespace) -> None:
    from fedpn.flower.deploy import certs

    place, nodes = options.place, options.nodes
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
    from fedpn.flower.deploy import control, health, home

    for key in options.keys:
        if not key.is_file():
            raise UserError(f"no key file {key}")
    connection = home.find(options.superlink, options.ca)
    health.check(connection.address, connection.ca, connection.plain)
    with tempfile.TemporaryDirectory() as scratch:
        place = home.write_home(Path(scratch), connection)
        for key in options.keys:
            new = control.register(place, key.resolve())
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
