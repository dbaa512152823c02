"""New keys in the place of old ones, and what to do with them: who copies what, who starts anew."""

import datetime
from collections.abc import Iterable
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.deploy import certs

NODE = """\
{name} has a new key; the old one is let in until it is barred.
1. on the SuperLink's machine, bar the old key:
       fedpn flower unregister {name} --superlink HOST:PORT --ca superlink/ca.crt
2. stop the node, and copy {place}/{name} to its machine (scp -rp) in the place of the old
3. copy {place}/superlink/nodes/{name}.pub into superlink/nodes of the SuperLink, then there:
       fedpn flower register superlink/nodes/{name}.pub --superlink HOST:PORT --ca superlink/ca.crt
4. start the node"""
SERVER = """\
the SuperLink has a new key and a certificate for {hosts}, until {until}.
1. let no run be in flight, and stop the SuperLink
2. copy {place}/superlink to its machine (scp -rp) in the place of the old, and to its proxy
3. start the SuperLink: nodes know the authority, and come back by themselves"""
AUTHORITY = """\
there is a new authority; it signed a new certificate for {hosts}, until {until}. Node keys stay.
1. let no run be in flight; stop all nodes and the SuperLink, for none believes the other any more
2. copy {place}/superlink to the SuperLink's machine (scp -rp) in the place of the old
3. copy {place}/NODE/ca.crt to each node, and wherever fedpn flower run takes its --ca from
4. start the SuperLink, then the nodes
{place}/ca.key is the new secret: keep it off line"""


def rotate(place: Path, what: str, hosts: Iterable[str] = (), days: int = certs.DAYS) -> str:
    """Makes a new key for a node, the server or the authority; returns what is to be done."""
    names = certs.checked(1, hosts, days)
    if not (place / "superlink").is_dir():
        raise UserError(f"--rotate: {place} is not what fedpn flower certs made (no superlink)")
    try:
        if what in ("server", "authority"):
            return _rotate_server(place, what, names, days)
        return _rotate_node(place, what)
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}; run it again") from None


def _rotate_node(place: Path, name: str) -> str:
    nodes = sorted(path.parent.name for path in place.glob("*/node.key"))
    if name not in nodes:
        known = ", ".join([*nodes, "server", "authority"])
        raise UserError(f"--rotate {name}: there is no such key in {place}; there are {known}")
    certs.write_node_key(place, name)
    return NODE.format(place=place, name=name)


def _rotate_server(place: Path, what: str, names: list[certs.Host], days: int) -> str:
    """Names are those of the old certificate, and those that were given."""
    server = place / "superlink" / "server.crt"
    if server.is_file():
        names += [name for name in certs.names_of(server)[1] if name not in names]
    if what == "authority":
        certs.write_authority(place)
        for node in place.glob("*/node.key"):
            certs.copy_authority(place, node.parent)
    authority = certs.read_authority(place)
    ends = authority.certificate.not_valid_after_utc
    if (ends - datetime.datetime.now(datetime.UTC)).days < 1:
        raise UserError(
            f"{place}/ca.crt ends on {ends:%Y-%m-%d}: --rotate authority makes a new one"
        )
    certs.write_server(place, authority, names, days)
    until = certs.names_of(server)[0].not_valid_after_utc
    told = ", ".join(str(name.value) for name in names)
    words = AUTHORITY if what == "authority" else SERVER
    return words.format(place=place, hosts=told, until=f"{until:%Y-%m-%d}")
