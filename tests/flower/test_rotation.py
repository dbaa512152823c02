"""New keys: what should change does, all else stays, and the old ones are worth nothing."""

import re
import ssl
import stat
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.flower.deploy import certs, members
from fedpn.flower.deploy.members import Member, find, fingerprint


@pytest.fixture
def place(tmp_path):
    certs.make(tmp_path / "certs", 2, ["link.example"])
    return tmp_path / "certs"


def files(place):
    return {
        p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()
    }


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def believed(authority, server, host="link.example"):
    """By a verifier that is not ours."""
    certificates = [x509.load_pem_x509_certificate(path) for path in (authority, server)]
    verifier = PolicyBuilder().store(Store([certificates[0]]))
    verifier.build_server_verifier(x509.DNSName(host)).verify(certificates[1], [])


def test_a_node(place, capsys):
    before = files(place)
    assert main(["flower", "certs", str(place), "--rotate", "node-1"]) == 0
    told = capsys.readouterr().out
    assert "fedpn flower unregister node-1" in told and "superlink/nodes/node-1.pub" in told
    after = files(place)
    assert changed(before, after) == {"node-1/node.key", "superlink/nodes/node-1.pub"}
    private = load_ssh_private_key(after["node-1/node.key"], None)
    assert private.public_key() == load_ssh_public_key(after["superlink/nodes/node-1.pub"])
    assert stat.S_IMODE((place / "node-1/node.key").stat().st_mode) == 0o600


def test_the_server(place, capsys):
    before = files(place)
    assert main(["flower", "certs", str(place), "--rotate", "server", "--host", "new.example"]) == 0
    assert "link.example" in capsys.readouterr().out
    after = files(place)
    assert changed(before, after) == {"superlink/server.key", "superlink/server.crt"}
    for host in ("link.example", "new.example", "localhost"):
        believed(before["node-0/ca.crt"], after["superlink/server.crt"], host)  # nodes need nothing
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "superlink/server.crt", place / "superlink/server.key")


def test_the_authority(place, capsys):
    before = files(place)
    assert main(["flower", "certs", str(place), "--rotate", "authority"]) == 0
    assert "stop all nodes and the SuperLink" in capsys.readouterr().out
    after = files(place)
    kept = {"node-0/node.key", "node-1/node.key"}
    kept |= {f"superlink/nodes/node-{i}.pub" for i in range(2)}
    assert changed(before, after) == set(before) - kept
    assert {after[f"{n}/ca.crt"] for n in ("superlink", "node-0", "node-1")} == {after["ca.crt"]}
    believed(after["node-1/ca.crt"], after["superlink/server.crt"])
    for old, new in ((before, after), (after, before)):
        with pytest.raises(VerificationError):
            believed(old["ca.crt"], new["superlink/server.crt"])
    certs.extend(place, 3)  # the new secret key is that of the new authority


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rotate", "node-7"], "there are node-0, node-1, server, authority"),
        (["--rotate", "../certs/node-0"], "no such key"),
        (["--rotate", "superlink"], "no such key"),
        (["--rotate", "server", "--nodes", "2"], "goes without --extend and --nodes"),
        (["--rotate", "server", "--days", "0"], "--days is 0"),
    ],
)
def test_mistakes_change_nothing(words, said, place, capsys):
    before = files(place)
    assert main(["flower", "certs", str(place), *words]) == 2
    assert said in capsys.readouterr().err
    assert files(place) == before


def test_an_authority_at_its_end_signs_nothing(place, monkeypatch, capsys):
    monkeypatch.setattr(certs, "CA_DAYS", 1)
    assert main(["flower", "certs", str(place), "--rotate", "authority", "--days", "1"]) == 2
    assert "--rotate authority makes a new one" in capsys.readouterr().err
    assert main(["flower", "certs", str(place / "nowhere"), "--rotate", "server"]) == 2


def test_a_fingerprint_is_that_of_openssh(place):
    path = place / "superlink/nodes/node-0.pub"
    pem = load_ssh_public_key(path.read_bytes()).public_bytes(
        certs.Encoding.PEM, certs.PublicFormat.SubjectPublicKeyInfo
    )
    assert fingerprint(path.read_bytes()) == fingerprint(pem)
    try:
        told = subprocess.run(
            ["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("there is no ssh-keygen")
    assert fingerprint(path.read_bytes()) in told.stdout


def test_a_node_is_found_by_name_number_or_key(place, monkeypatch):
    path = place / "superlink/nodes/node-0.pub"
    first = Member(11, "node-0", "online", fingerprint(path.read_bytes()))
    listed = [
        first,
        Member(12, "twin", "offline", "SHA256:x"),
        Member(13, "twin", "online", "SHA256:y"),
    ]
    for asked in ("node-0", "11", str(path)):
        assert find(asked, listed) == first
    for asked, words in (
        ("twin", "2 nodes are called twin: say which by number, 12, 13"),
        ("node-9", "no node node-9 is registered there; there is node-0, twin, twin"),
        (str(place / "superlink/nodes/node-1.pub"), "no node"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            find(asked, listed)
    with pytest.raises(UserError, match="cannot be read"):
        fingerprint(b"ssh-rsa nonsense")
    assert members.BARRED not in {member.state for member in listed}
