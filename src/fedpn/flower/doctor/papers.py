"""Certificates and keys: who signed what, for whom, until when, and who may read it."""

import datetime
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from fedpn.core.errors import UserError
from fedpn.flower.deploy.certs import EVERYWHERE, general_name, names_of
from fedpn.flower.deploy.members import fingerprint
from fedpn.flower.doctor.finding import Finding, fail, ok, warn

SOON = 30  # days
MAKE = "make them with fedpn flower certs"
ROTATE = "fedpn flower certs DIR --rotate {what}, where DIR is the operator's directory"
Found = Iterator[Finding]


def check_papers(place: Path, host: str | None) -> Found:
    """A directory of `fedpn flower certs`: the operator's, a SuperLink's or a node's."""
    if not place.is_dir():
        yield fail("certificates", f"{place} is not a directory", MAKE)
        return
    whole = (place / "superlink").is_dir()
    if not whole and not any((place / name).exists() for name in ("server.crt", "node.key")):
        yield fail("certificates", f"{place} holds neither server.crt nor node.key", MAKE)
        return
    yield from _check_modes(place)
    if whole:
        yield from _check_authority_key(place)
    link = place / "superlink" if whole else place
    if (link / "server.crt").exists() or whole:
        yield from _check_server(link, host)
        yield from _check_public(link)
    for key in sorted([*place.glob("node.key"), *place.glob("*/node.key")]):
        yield from _check_node(key, link if whole else None)


def _check_modes(place: Path) -> Found:
    """Secrets are their owner's alone."""
    keys = dict.fromkeys(place.rglob("*.key"), 384)
    places = {p: 0o700 for p in (place, *place.rglob("*")) if p.is_dir()}
    open_ = {p: mode for p, mode in (keys | places).items() if p.stat().st_mode & 0o077}
    for path, mode in sorted(open_.items()):
        said = f"{path} can be used by others ({path.stat().st_mode & 0o777:04o})"
        level = fail if path in keys else warn
        yield level("permissions", said, f"chmod {mode:o} {path}")
    if not open_:
        yield ok("permissions", f"keys in {place} are their owner's alone")


def _check_authority_key(place: Path) -> Found:
    authority = _certificate(place / "ca.crt")
    if isinstance(authority, str):
        yield fail("authority", authority, ROTATE.format(what="authority"))
    elif not (place / "ca.key").exists():
        yield ok("authority", f"{place}/ca.key is not here, which is where it should not be")
    elif _public(place / "ca.key") != authority.public_key():
        said = f"{place}/ca.key is not the key of ca.crt"
        yield fail("authority", said, ROTATE.format(what="authority"))
    else:
        yield ok("authority", f"{place}/ca.key is that of ca.crt; keep it off line")


def _check_server(place: Path, host: str | None) -> Found:
    authority, server = _certificate(place / "ca.crt"), _certificate(place / "server.crt")
    for found in (authority, server):
        if isinstance(found, str):
            yield fail("server", found, ROTATE.format(what="server"))
    if isinstance(authority, str) or isinstance(server, str):
        return
    yield _valid("authority", place / "ca.crt", authority)
    yield _valid("server", place / "server.crt", server)
    try:
        server.verify_directly_issued_by(authority)
        yield ok("chain", f"{place}/server.crt is signed by ca.crt")
    except (ValueError, TypeError, InvalidSignature):
        said = f"{place}/server.crt is not signed by the ca.crt beside it"
        yield fail("chain", said, ROTATE.format(what="server"))
    if _public(place / "server.key") == server.public_key():
        yield ok("server", "server.key is that of server.crt")
    else:
        said = f"{place}/server.key is not the key of server.crt"
        yield fail("server", said, "copy the whole of superlink, not single files")
    yield from _check_names(place / "server.crt", host)


def _check_names(certificate: Path, host: str | None) -> Found:
    try:
        names = names_of(certificate)[1]
    except UserError as error:
        yield fail("names", str(error), ROTATE.format(what="server"))
        return
    told = ", ".join(str(name.value) for name in names)
    if host is None or host in EVERYWHERE or general_name(host) in names:
        yield ok("names", f"the server's certificate names {told}")
    else:
        way = f"{ROTATE.format(what='server')} --host {host}"
        yield fail("names", f"the server's certificate names {told}, but not {host}", way)


def _check_public(place: Path) -> Found:
    """The keys that a SuperLink lets in."""
    keys: dict[str, str] = {}
    for path in sorted((place / "nodes").glob("*.pub")):
        try:
            key = fingerprint(path.read_bytes())
        except (OSError, UserError) as error:
            yield fail("nodes", f"{path}: {error}", "copy it anew from the operator's directory")
            continue
        if key in keys:
            said = f"{path.name} and {keys[key]} are one key"
            yield fail("nodes", said, ROTATE.format(what=path.stem))
        keys[key] = path.name
    if keys:
        yield ok("nodes", f"{len(keys)} nodes may join: {', '.join(sorted(keys.values()))}")
    else:
        way = "copy superlink/nodes, or nobody is let in"
        yield warn("nodes", f"there is no public key in {place}/nodes", way)


def _check_node(path: Path, link: Path | None) -> Found:
    """A node's key and whom it believes; with the operator's directory, whether it is let in."""
    name = path.parent.name
    key, way = _public(path), ROTATE.format(what=name)
    if key is None:
        yield fail(name, f"{path} is not a key that Flower takes (ECDSA, in OpenSSH's form)", way)
        return
    authority = _certificate(path.parent / "ca.crt")
    if isinstance(authority, str):
        yield fail(name, authority, "copy the ca.crt of this federation")
        return
    yield _valid(name, path.parent / "ca.crt", authority)
    if link is None:
        yield ok(name, f"{path} is a node's key")
        return
    public = link / "nodes" / f"{name}.pub"
    if not public.exists():
        yield warn(name, f"{public} is missing, so {name} is not let in", way)
    elif _matches(public, path):
        yield ok(name, f"{name}'s key is the one that is let in")
    else:
        yield fail(name, f"{public} is not the public key of {path}", way)
    if authority != _certificate(link / "ca.crt"):
        yield fail(name, f"{path.parent}/ca.crt is another than the SuperLink's", "copy ca.crt")


def _valid(what: str, path: Path, certificate: x509.Certificate) -> Finding:
    """Whether a certificate holds now, by this machine's clock."""
    now = datetime.datetime.now(datetime.UTC)
    until, since = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    kind = "authority" if path.name == "ca.crt" else "server"
    way, days = ROTATE.format(what=kind), (until - now).days
    if since > now:
        said = f"{path} is valid from {since:%Y-%m-%d %H:%M} UTC on, and it is {now:%Y-%m-%d %H:%M}"
        return fail("clock", said, "set this machine's clock (timedatectl set-ntp true)")
    if until < now:
        return fail(what, f"{path} was valid until {until:%Y-%m-%d}", way)
    if days < SOON:
        return warn(what, f"{path} ends in {days} days, on {until:%Y-%m-%d}", way)
    return ok(what, f"{path} is valid until {until:%Y-%m-%d}")


def _certificate(path: Path) -> x509.Certificate | str:
    """A certificate, or what is wrong with it."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except ValueError:
        return f"{path} is not a certificate in PEM form"


def _matches(public: Path, key: Path) -> bool:
    found = _public(key)
    try:
        return found is not None and fingerprint(public.read_bytes()) == _print(found)
    except (OSError, UserError):
        return False


def _print(key: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return fingerprint(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _public(path: Path) -> EllipticCurvePublicKey | None:
    """The public half of a secret key, where it is one."""
    try:
        content = path.read_bytes()
        load = load_ssh_private_key if b"OPENSSH" in content[:40] else load_pem_private_key
        key = load(content, None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key.public_key() if isinstance(key, EllipticCurvePrivateKey) else None
