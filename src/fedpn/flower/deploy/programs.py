"""The command lines of Flower's SuperLink and SuperNode, with safe defaults."""

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedpn.core.errors import UserError
from fedpn.flower.deploy.environment import program
from fedpn.flower.deploy.health import is_here
from fedpn.flower.place import WORKER_SECRET, write_whole

# Starts a program that ends when a part of it fails; -P: no module of the directory it starts in.
_SCRIPT = (sys.executable, "-P", "-m", "fedpn.flower.deploy.script")


class LinkFiles(NamedTuple):
    """What a SuperLink needs to prove who it is; public keys of the nodes it may talk to."""

    ca: Path
    certificate: Path
    key: Path
    nodes: tuple[Path, ...]


class NodeFiles(NamedTuple):
    """What a SuperNode needs to know its SuperLink and to prove who it is."""

    ca: Path
    key: Path


def link_files(place: Path) -> LinkFiles:
    """A SuperLink's part of `fedpn flower certs`."""
    if not (place / "server.key").exists() and (place / "superlink" / "server.key").exists():
        place = place / "superlink"
    ca, certificate, key = (_file(place, n) for n in ("ca.crt", "server.crt", "server.key"))
    return LinkFiles(ca, certificate, key, tuple(sorted((place / "nodes").glob("*.pub"))))


def node_files(place: Path, key: Path | None = None) -> NodeFiles:
    """A SuperNode's part of `fedpn flower certs`; its key may lie elsewhere."""
    if key is not None and not key.is_file():
        raise UserError(f"no key file {key}")
    return NodeFiles(_file(place, "ca.crt"), (key or _file(place, "node.key")).resolve())


def _file(place: Path, name: str) -> Path:
    if not place.is_dir():
        raise UserError(f"--certs {place} is not a directory; make one with fedpn flower certs")
    if not (place / name).is_file():
        raise UserError(f"--certs {place} has no {name}; see fedpn flower certs --help")
    return (place / name).resolve()


def superlink(host: str, port: int, files: LinkFiles | None, database: Path) -> list[str]:
    """The command of a SuperLink; out of this machine's bounds only with TLS and node keys."""
    if files is None and not is_here(host):
        raise UserError(
            f"--host {host} is in others' reach, so it needs TLS and node keys: make them with "
            "fedpn flower certs, and give --certs"
        )
    command = [*_SCRIPT, program("flower-superlink"), "--host", host, "--port", str(port)]
    command += ["--database", str(database.resolve())]
    command.append("--disable-runtime-dependency-installation")
    if files is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(files.ca), "--ssl-certfile", str(files.certificate)]
    return [*command, "--ssl-keyfile", str(files.key), "--enable-supernode-auth"]


def supernode(
    address: str, here: bool, port: int, files: NodeFiles | None, facts: Mapping[str, str | int]
) -> list[str]:
    """The command of a SuperNode; without TLS it talks to this machine alone."""
    if files is None and not here:
        raise UserError(
            f"--superlink {address} is another machine, so this needs TLS and a node key: give "
            "--certs"
        )
    command = [*_SCRIPT, program("flower-supernode"), "--superlink", address]
    command += ["--host", "127.0.0.1", "--port", str(port), "--node-config", node_config(facts)]
    # Messages wait for the node's own worker, who proves that it is: no code of a run is executed.
    secret = Path(str(facts["state-dir"])) / WORKER_SECRET
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    if files is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(files.ca)]
    return [*command, "--auth-supernode-private-key", str(files.key)]


def worker(port: int, state: Path) -> list[str]:
    """The command of a node's worker, which answers what its SuperNode takes in."""
    address = f"127.0.0.1:{port}"
    return [sys.executable, "-P", "-m", "fedpn.flower.worker", address, str(state.resolve())]


def make_secret(state: Path) -> None:
    """A new secret, by which a SuperNode knows its worker."""
    path = state / WORKER_SECRET
    path.unlink(missing_ok=True)
    write_whole(path, secrets.token_bytes(32), 0o600)


def node_config(facts: Mapping[str, str | int]) -> str:
    r"""Writes a node's facts as Flower reads them: by a pattern first, then as TOML.

    The pattern ends a text at its first quotation mark, escaped or not, so that marks and all
    else that is special go by number.

    >>> print(node_config({"partition-id": 0, "data": '/a b/"c"'}))
    partition-id=0 data="/a b/\U00000022c\U00000022"
    """
    return " ".join(f"{key}={_value(value)}" for key, value in facts.items())


def _value(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    special = [not c.isprintable() or c in '"\\' for c in value]
    escaped = (f"\\U{ord(c):08x}" if s else c for c, s in zip(value, special, strict=True))
    return '"' + "".join(escaped) + '"'
