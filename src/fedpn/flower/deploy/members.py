"""Who is registered with a SuperLink: numbers, names and public keys.

Flower's own tool tells neither names nor keys, so its client is asked, in a process of its own that
has Flower's environment.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from fedpn.core.errors import UserError
from fedpn.flower.deploy import control
from fedpn.flower.deploy.environment import program
from fedpn.flower.deploy.home import NAME
from fedpn.flower.deploy.processes import Failure

BARRED = "unregistered"


class Member(NamedTuple):
    """A node that may join."""

    number: int
    name: str
    state: str  # online, offline, registered
    key: str  # a fingerprint


def members(home: Path) -> list[Member]:
    """Asks the SuperLink of a home for its nodes; those that are barred are not told."""
    program("flwr")  # or says what to install
    command = [sys.executable, "-P", "-m", "fedpn.flower.deploy.members"]
    done = control.call(home, command, "a question for the nodes")
    try:
        listed = [Member(*item) for item in json.loads(done.stdout.splitlines()[-1])]
    except (ValueError, TypeError, IndexError):
        raise Failure(f"the SuperLink told no nodes: {control.last_line(done.stderr)}") from None
    return [member for member in listed if member.state != BARRED]


def is_known(home: Path, key: Path) -> bool:
    """Whether a public key is that of a node that may join."""
    return fingerprint(key.read_bytes()) in {member.key for member in members(home)}


def find(asked: str, listed: list[Member]) -> Member:
    """A node by its name, its number, or the file of its public key."""
    if asked.endswith(".pub") and Path(asked).is_file():
        print_ = fingerprint(Path(asked).read_bytes())
        found = [member for member in listed if member.key == print_]
    else:
        found = [member for member in listed if asked in (member.name, str(member.number))]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(str(member.number) for member in found)
        raise UserError(f"{len(found)} nodes are called {asked}: say which by number, {numbers}")
    known = ", ".join(member.name or str(member.number) for member in listed) or "nobody"
    raise UserError(f"no node {asked} is registered there; there is {known}")


def fingerprint(content: bytes) -> str:
    """Of a public key, in OpenSSH's form or in PEM, what OpenSSH says too."""
    import base64
    import hashlib

    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
        load_ssh_public_key,
    )

    try:
        load = load_pem_public_key if content.startswith(b"-----") else load_ssh_public_key
        key = load(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(f"a public key cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise UserError("a public key is of a kind that Flower does not take")
    wire = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]
    digest = hashlib.sha256(base64.b64decode(wire)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _tell() -> None:
    """Prints the nodes of the SuperLink that $FLWR_HOME knows."""
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.proto.control_pb2 import ListNodesRequest

    client = init_http_client_from_connection(read_superlink_connection(NAME))
    try:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    finally:
        client.close()
    told = [(n.node_id, n.name, n.status, fingerprint(n.public_key)) for n in nodes]
    print("\n" + json.dumps(told), flush=True)


if __name__ == "__main__":
    _tell()
