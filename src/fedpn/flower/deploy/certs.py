"""Certificates and keys of a federation: what each machine needs, in a directory of its own."""

import datetime
import ipaddress
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpn.core.errors import UserError
from fedpn.flower.place import write_whole

HERE = ("localhost", "127.0.0.1")
EVERYWHERE = ("0.0.0.0", "::")
CA_DAYS = 3650
DAYS = 365
NODES = 10_000
Host = x509.GeneralName
_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9-]{1,63})*", re.I)


class Authority(NamedTuple):
    """Who signs the server's certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make(place: Path, nodes: int, hosts: Iterable[str] = (), days: int = DAYS) -> None:
    """Makes a federation's certificates in a new directory, whole or not at all."""
    names = checked(nodes, hosts, days)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(
            f"{place} is there already; choose another directory, or add --extend to keep its "
            "authority and node keys"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".certs-") as draft:
            root = Path(draft) / "certs"
            _directory(root)
            write_authority(root)
            _fill(root, nodes, names, days)
            root.replace(place)
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}") from None


def extend(place: Path, nodes: int, hosts: Iterable[str] = (), days: int = DAYS) -> None:
    """Issues a new server certificate and the keys of new nodes; the rest stays as it is.

    The new certificate names all hosts that the old one named.
    """
    names = checked(nodes, hosts, days)
    if not (place / "ca.key").is_file():
        raise UserError(f"--extend: {place} holds no certificate authority (it has no ca.key)")
    old = place / "superlink" / "server.crt"
    if old.is_file():
        names += [name for name in names_of(old)[1] if name not in names]
    try:
        _fill(place, nodes, names, days)
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}") from None


def check_server(certificate: Path, host: str) -> None:
    """Refuses a certificate that nobody would believe at this host."""
    found, names = names_of(certificate)
    until = found.not_valid_after_utc
    way = "renew it with fedpn flower certs DIR --extend"
    if until < _now():
        raise UserError(f"{certificate} was valid until {until:%Y-%m-%d}; {way}")
    if host not in EVERYWHERE and general_name(host) not in names:
        known = ", ".join(str(name.value) for name in names)
        raise UserError(f"{certificate} names {known}, but not {host}; {way} --host {host}")


def names_of(certificate: Path) -> tuple[x509.Certificate, list[x509.GeneralName]]:
    """A server's certificate, and the hosts that it names."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise UserError(f"{certificate} is not a server's certificate: {error}") from None
    return found, list(names)


def there_are(place: Path) -> int:
    """How many nodes a federation's directory has keys for."""
    return sum(1 for node in place.glob("node-*") if node.is_dir())


def checked(nodes: int, hosts: Iterable[str], days: int) -> list[x509.GeneralName]:
    """The hosts of a certificate, ours among them; refuses numbers that cannot be."""
    if not 1 <= nodes <= NODES:
        raise UserError(f"--nodes is {nodes}, but must be between 1 and {NODES}")
    if not 1 <= days <= CA_DAYS:
        raise UserError(f"--days is {days}, but must be between 1 and {CA_DAYS}")
    return [general_name(host) for host in dict.fromkeys((*HERE, *hosts))]


def general_name(host: str) -> x509.GeneralName:
    """A host as certificates name it.

    >>> general_name("10.0.0.5")
    <IPAddress(value=10.0.0.5)>
    >>> general_name("link.hospital.example")
    <DNSName(value='link.hospital.example')>
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _NAME.fullmatch(host):
            raise UserError(
                f"--host {host!r} is neither a name nor an address (give it without a port)"
            ) from None
        return x509.DNSName(host.lower())


def _fill(root: Path, nodes: int, names: list[x509.GeneralName], days: int) -> None:
    authority = read_authority(root)
    write_server(root, authority, names, days)
    for i in range(nodes):
        _write_node(root, f"node-{i}")


def write_authority(root: Path) -> None:
    """A new authority, in the place of an old one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpn federation")])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        _draft(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_whole(root / "ca.key", _pem(key), 0o600)
    write_whole(root / "ca.crt", certificate.public_bytes(Encoding.PEM), 0o644)


def read_authority(root: Path) -> Authority:
    """Who signs, with its secret key."""
    try:
        key = load_pem_private_key((root / "ca.key").read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((root / "ca.crt").read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"the certificate authority in {root} cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != (
        certificate.public_key()
    ):
        raise UserError(f"{root / 'ca.key'} is not the key of {root / 'ca.crt'}")
    return Authority(key, certificate)


def write_server(
    root: Path, authority: Authority, names: list[x509.GeneralName], days: int
) -> None:
    """A server's new key, and a certificate for the hosts it is reached by."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SuperLink")])
    days = min(days, (authority.certificate.not_valid_after_utc - _now()).days)
    certificate = (
        _draft(name, authority.certificate.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    place = _directory(root / "superlink")
    write_whole(place / "server.key", _pem(key), 0o600)
    write_whole(place / "server.crt", certificate.public_bytes(Encoding.PEM), 0o644)
    copy_authority(root, place)


def copy_authority(root: Path, place: Path) -> None:
    """Gives a machine's directory the certificate that it knows others by."""
    write_whole(place / "ca.crt", (root / "ca.crt").read_bytes(), 0o644)


def _write_node(root: Path, name: str) -> None:
    if not (root / name / "node.key").exists():
        write_node_key(root, name)


def write_node_key(root: Path, name: str) -> None:
    """A new key pair of a node, in OpenSSH's form: Flower takes no other."""
    place = _directory(root / name)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    copy_authority(root, place)
    nodes = _directory(root / "superlink" / "nodes")
    write_whole(nodes / f"{name}.pub", public + f" {name}\n".encode(), 0o644)
    write_whole(place / "node.key", private, 0o600)  # last: who has it has both


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    # An hour back, for machines whose clocks differ.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - datetime.timedelta(hours=1))
        .not_valid_after(_now() + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(**allowed: bool) -> x509.KeyUsage:
    kinds = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**dict.fromkeys(kinds, False) | allowed)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _directory(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path
