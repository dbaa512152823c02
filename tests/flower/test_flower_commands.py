"""What people type around Flower, mistakes included; nothing here needs a federation."""

import contextlib
import ipaddress
import json
import os
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from flwr.common.config import parse_config_args

from fedpn.cli.commands import flower_run
from fedpn.cli.console import Display
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.flower.deploy import (
    certs,
    control,
    demo,
    environment,
    health,
    home,
    launch,
    node,
    programs,
)
from fedpn.flower.deploy.processes import Child, Failure, marked
from fedpn.runs.config import resolve


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Certificates for two nodes and a SuperLink with a name and an address."""
    place = tmp_path_factory.mktemp("flower") / "certs"
    command = ["flower", "certs", str(place), "--nodes", "2", "--days", "30"]
    assert main([*command, "--host", "link.example", "--host", "10.0.0.5"]) == 0
    return place


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty directory to work in, no configuration of Flower's own, and no Flower to start."""
    monkeypatch.chdir(tmp_path)
    for module in (programs, control, launch):
        monkeypatch.setattr(module, "program", lambda name: "/bin/false")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "no-flower"))
    return tmp_path


def _certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def _chain(authority, host):
    return (
        PolicyBuilder()
        .store(Store([_certificate(authority)]))
        .build_server_verifier(host)
        .verify(_certificate(authority.parent / "superlink" / "server.crt"), [])
    )


@pytest.mark.parametrize("host", ["link.example", "localhost", "10.0.0.5", "127.0.0.1"])
def test_the_server_is_believed_under_each_of_its_names(made, host):
    try:
        name = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        name = x509.DNSName(host)
    assert len(_chain(made / "ca.crt", name)) == 2


def test_the_server_is_not_believed_under_another_name(made):
    with pytest.raises(VerificationError):
        _chain(made / "ca.crt", x509.DNSName("other.example"))


def test_the_certificate_lasts_as_long_as_was_asked(made):
    server = _certificate(made / "superlink" / "server.crt")
    assert 30 <= (server.not_valid_after_utc - server.not_valid_before_utc).days <= 31


def test_openssl_agrees(made):
    """By Python's TLS, at its strictest, over real sockets."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made / "superlink" / "server.crt", made / "superlink" / "server.key")
    client = ssl.create_default_context(cafile=made / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def answer():
        with server.wrap_socket(theirs, server_side=True) as stream:
            stream.sendall(b"hello")

    thread = threading.Thread(target=answer)
    thread.start()
    with client.wrap_socket(ours, server_hostname="link.example") as stream:
        assert stream.recv(5) == b"hello"
    thread.join()


def test_node_keys_are_pairs_in_the_form_flower_takes(made):
    for name in ("node-0", "node-1"):
        private = load_ssh_private_key((made / name / "node.key").read_bytes(), None)
        public = load_ssh_public_key((made / "superlink" / "nodes" / f"{name}.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert private.public_key() == public
    assert (made / "node-0" / "node.key").read_bytes() != (
        made / "node-1" / "node.key"
    ).read_bytes()


def test_secrets_are_the_owners_alone(made):
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in [made, *made.rglob("*")]}
    assert {m for p, m in modes.items() if p.is_dir()} == {0o700}
    assert {m for p, m in modes.items() if p.suffix == ".key"} == {0o600}
    assert len([p for p in modes if p.suffix == ".key"]) == 4  # authority, server, two nodes


def test_no_machine_gets_anothers_secret(made):
    assert {p.name for p in (made / "node-0").iterdir()} == {"ca.crt", "node.key"}
    assert {p.name for p in (made / "superlink").rglob("*.key")} == {"server.key"}


def test_certificates_are_never_overwritten(made, capsys):
    before = {p: p.read_bytes() for p in made.rglob("*") if p.is_file()}
    assert main(["flower", "certs", str(made), "--nodes", "2"]) == 2
    assert "--extend" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in made.rglob("*") if p.is_file()} == before


def test_extending_keeps_hosts_and_the_number_of_nodes(tmp_path, capsys):
    place = tmp_path / "c"
    assert main(["flower", "certs", str(place), "--nodes", "3", "--host", "link.example"]) == 0
    assert main(["flower", "certs", str(place), "--extend", "--host", "10.0.0.5"]) == 0
    for host in ("link.example", "10.0.0.5", "localhost"):
        certs.check_server(place / "superlink/server.crt", host)
    assert certs.there_are(place) == 3
    assert main(["flower", "certs", str(tmp_path / "other")]) == 2
    assert "--nodes is missing" in capsys.readouterr().err


def test_what_programs_write_is_for_their_owner(tmp_path):
    command = [sys.executable, "-c", "open('db', 'w'); print('hello')"]
    environment = {"PATH": os.environ["PATH"]}
    program = ["/bin/sh", "-c", f"cd {tmp_path} && exec {shlex.join(command)}"]
    with Child("program", program, environment, tmp_path / "log") as child:
        child.process.wait()
    assert {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {
        "db": 0o600,
        "log": 0o600,
    }


def test_a_nodes_directory_is_made_private(tmp_path):
    tmp_path.chmod(0o755)
    with node._kept(tmp_path):
        assert tmp_path.stat().st_mode & 0o777 == 0o700
        with pytest.raises(UserError, match="in use by another node"), node._kept(tmp_path):
            pass


def test_words_of_nodes_are_printed_as_they_are(capsys):
    with Display() as display:
        display.say("node 3 failed: [code: 9] [/x]")
    assert "[code: 9] [/x]" in capsys.readouterr().err


def test_extending_keeps_the_authority_and_the_keys(tmp_path):
    place = tmp_path / "certs"
    certs.make(place, 1)
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    assert main(["flower", "certs", str(place), "--nodes", "2", "--extend", "--host", "x.org"]) == 0
    after = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    changed = {p.name for p in before if before[p] != after[p]}
    assert changed == {"server.crt", "server.key"}
    assert {p.name for p in after.keys() - before.keys()} == {"ca.crt", "node.key", "node-1.pub"}
    assert len(_chain(place / "ca.crt", x509.DNSName("x.org"))) == 2


def test_extending_goes_on_where_it_was_cut(tmp_path, monkeypatch):
    place, whole = tmp_path / "certs", certs.write_whole
    certs.make(place, 1)

    def cut(path, *more):
        if path.name == "node-1.pub":
            raise KeyboardInterrupt
        whole(path, *more)

    monkeypatch.setattr(certs, "write_whole", cut)
    with pytest.raises(KeyboardInterrupt):
        certs.extend(place, 2)
    monkeypatch.setattr(certs, "write_whole", whole)
    certs.extend(place, 2)
    assert (place / "superlink/nodes/node-1.pub").exists() and (place / "node-1/node.key").exists()


def test_a_failure_leaves_no_half_of_certificates(tmp_path, monkeypatch):
    monkeypatch.setattr(certs, "_write_node", lambda root, name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        certs.make(tmp_path / "certs", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["certs", "c", "--nodes", "0"], "--nodes is 0"),
        (["certs", "c", "--nodes", "two"], "invalid int"),
        (["certs", "c", "--nodes", "1", "--days", "0"], "--days is 0"),
        (["certs", "c", "--nodes", "1", "--host", "a b"], "'a b' is neither"),
        (["certs", "c", "--nodes", "1", "--host", "x.org:8000"], "without a port"),
        (["certs", "c", "--nodes", "1", "--host", "https://x.org"], "neither a name"),
        (["certs", "c", "--nodes", "1", "--extend"], "no certificate authority"),
        (["certs", "mine/c", "--nodes", "1"], "mine/c cannot be written"),
        (["init", "mine"], "mine cannot be made"),
        (["init", "a", "--dataset", "digits", "--set", "fedpn.gama=1"], "fedpn.gamma"),
        (["init", "a", "--clients", "0"], "clients is 0"),
        (["superlink", "--host", "0.0.0.0"], "needs TLS and node keys"),
        (["superlink", "--host", "192.0.2.1"], "in others' reach"),
        (["superlink", "--certs", "nowhere"], "not a directory"),
        (["superlink", "--certs", "."], "has no ca.crt"),
        (["superlink", "--port", "0"], "'0' is no port"),
        (["superlink", "--database", "no/where.db"], "there is no directory"),
        (["supernode", "--state", "s", "--partition", "0", "--of", "2"], "--superlink"),
        (["supernode", "--superlink", "h", "--state", "s", "--data", "."], "HOST:PORT"),
        (["supernode", "--superlink", "10.0.0.5:1", "--state", "s", "--data", "."], "--certs"),
        (["supernode", "--superlink", "localhost:1", "--state", "s"], "--data PATH"),
        (["supernode", "--superlink", "localhost:1", "--state", "s", "--data", "x"], "not there"),
        (
            ["supernode", "--superlink", "localhost:1", "--state", "s", "--partition", "2"],
            "from 0 to N − 1",
        ),
        (
            ["supernode", "--superlink", "localhost:1", "--state", "mine", "--data", "."],
            "mine cannot be used",
        ),
        (
            [
                "supernode",
                "--superlink",
                "localhost:1",
                "--state",
                "s",
                "--data",
                ".",
                "--key",
                "k",
            ],
            "--key goes with --certs",
        ),
        (["register", "no.pub", "--superlink", "localhost:1"], "no key file no.pub"),
        (["register", "mine", "--superlink", "localhost:1"], "no SuperLink answers"),
        (["run", "no.toml", "--superlink", "localhost:1", "--out", "o"], "no config file"),
        (["run", "c.toml", "--superlink", "localhost:1", "--out", "o"], "no SuperLink answers"),
        (["run", "c.toml", "--superlink", "lan", "--out", "o"], "give HOST:PORT"),
        (["run", "c.toml", "--superlink", "x.org:8000", "--out", "o"], "absolute path"),
        (["run", "c.toml", "--superlink", "http://x.org:80", "--out", "o"], "HOST:PORT"),
        (["run", "c.toml", "--superlink", "localhost:99999", "--out", "o"], "HOST:PORT"),
        (
            ["run", "c.toml", "--superlink", "localhost:1", "--ca", "no.crt", "--out", "o"],
            "no certificate file no.crt",
        ),
        (
            ["run", "c.toml", "--superlink", "localhost:1", "--ca", "mine", "--out", "o"],
            "not a certificate",
        ),
        (["run", "c.toml", "--superlink", "localhost:1", "--out", "o", "--nodes", "0"], "above 0"),
        (["run", "c.toml", "--superlink", "localhost:1", "--out", "o", "--timeout", "0"], "above"),
        (["run", "c.toml", "--superlink", "localhost:1", "--out", "o", "--set", "x"], "key=value"),
        (["run", "c.toml", "--superlink", "localhost:1"], "--out"),
        (["demo", "--keep", "mine"], "mine cannot be made"),
        (["demo", "--keep", "."], ". is not empty"),
        (["demo", "--nodes", "0"], "a demo has at least one node"),
        ([], "COMMAND"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, words, alone, capsys):
    (alone / "mine").write_text("mine")
    (alone / "c.toml").write_text("clients = 20\n")
    assert main(["flower", *arguments]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("fedpn: ")
    assert words in said
    left = {p.name for p in alone.rglob("*") if p.is_file()}
    assert left <= {"mine", "c.toml"}


def test_a_port_that_is_taken(alone, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert main(["flower", "superlink", "--port", port]) == 2
        assert f"--port {port} is taken" in capsys.readouterr().err
        node = ["flower", "supernode", "--superlink", "localhost:1", "--state", "s", "--data", "."]
        assert main([*node, "--port", port]) == 2
        assert f"--port {port} is taken" in capsys.readouterr().err


def test_a_certificate_that_names_other_hosts_or_is_over(made, tmp_path):
    server = made / "superlink" / "server.crt"
    for host in ("0.0.0.0", "10.0.0.5", "localhost"):
        certs.check_server(server, host)
    with pytest.raises(UserError, match=r"but not 10.0.0.6.*--extend --host 10.0.0.6"):
        certs.check_server(server, "10.0.0.6")
    with pytest.raises(UserError, match="not a server's certificate"):
        certs.check_server(made / "ca.crt", "localhost")
    day = certs._now() + certs.datetime.timedelta(days=40)
    with pytest.MonkeyPatch.context() as later:
        later.setattr(certs, "_now", lambda: day)
        with pytest.raises(UserError, match="was valid until"):
            certs.check_server(server, "localhost")


def test_init_makes_an_app_that_flower_accepts(alone, capsys):
    from flwr.cli.config_utils import load_and_validate

    arguments = ["flower", "init", "fed", "--clients", "4", "--set", "fedpn.gamma=0.02"]
    assert main(arguments) == 0
    config = resolve([tomllib.loads((alone / "fed" / "fedpn.toml").read_text())])
    assert (config.clients, config.method.gamma) == (4, 0.02)
    app, warnings = load_and_validate(alone / "fed" / "pyproject.toml")
    assert not warnings
    keys = set(launch.Order(config, "/o", False, 4, 1.0, 1.0).settings())
    assert set(app["tool"]["flwr"]["app"]["config"]) == keys
    assert app["project"]["dependencies"] == ["flwr>=1.41,<1.42"]
    capsys.readouterr()
    assert main(arguments) == 2
    assert "fed is not empty" in capsys.readouterr().err


def _files(app):
    return {str(p.relative_to(app)) for p in app.rglob("*") if p.is_file()}


def test_own_modules_travel_and_nothing_else(alone):
    main(["flower", "init", "fed"])
    for name in ("homebody.py", "notes.md", "data.json", "runs/metrics.json", "runs/x.py"):
        (alone / "fed" / name).parent.mkdir(exist_ok=True)
        (alone / "fed" / name).write_text("")
    (alone / "one").mkdir()
    app, modules = launch.make_app(alone / "fed" / "fedpn.toml", alone / "one")
    assert _files(app) == {"pyproject.toml", "homebody.py"}
    assert modules == ["homebody.py"]


def test_a_config_anywhere_else_travels_alone(alone):
    (alone / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (alone / "mine.py").write_text("")
    (alone / "c.toml").write_text("")
    (alone / "one").mkdir()
    app, modules = launch.make_app(alone / "c.toml", alone / "one")
    assert _files(app) == {"pyproject.toml"}
    assert "tool" in tomllib.loads((app / "pyproject.toml").read_text())
    assert modules == []


TEXTS = ["/plain", "a b", "it's", 'say "x"', "back\\slash", "ü\n=\t'\"", "\U0001f600", "x.toml"]


@pytest.mark.parametrize("value", [*TEXTS, 7])
def test_a_nodes_facts_arrive_as_they_were(value):
    facts = {"data": value, "partition-id": 0}
    assert parse_config_args([programs.node_config(facts)]) == facts


def test_a_runs_settings_arrive_as_they_were(tmp_path):
    config = resolve([{"dataset": 'it\'s "mine"\n\\ü.csv'}])
    order = launch.Order(config, "/a b", True, 3, 60.0, 30.0)
    launch.write_toml(tmp_path / "run.toml", order.settings())
    arrived = parse_config_args([str(tmp_path / "run.toml")])
    assert arrived == order.settings()
    assert resolve([json.loads(arrived["config"])]) == config


def test_flowers_programs_keep_to_themselves(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    variables = environment.environment(tmp_path)
    assert variables["FLWR_TELEMETRY_ENABLED"] == "0"
    assert variables["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert variables["FLWR_HOME"] == str(tmp_path)
    first = Path(variables["PATH"].split(os.pathsep)[0])
    assert (first / "flower-superexec").exists()


def test_without_flower_there_is_a_way_out(monkeypatch):
    monkeypatch.setattr(environment, "is_here", lambda name: False)
    with pytest.raises(UserError, match=r"pip install 'fedpn\[flower\]'"):
        environment.program("flwr")


def test_a_superlink_in_others_reach_has_tls_and_asks_for_keys(made):
    files = programs.link_files(made / "superlink")
    assert programs.link_files(made) == files
    command = programs.superlink("0.0.0.0", 8000, files, Path("x.db"))
    assert "--insecure" not in command
    assert "--enable-supernode-auth" in command
    assert "--disable-runtime-dependency-installation" in command
    assert [key.stem for key in files.nodes] == ["node-0", "node-1"]
    assert "--insecure" in programs.superlink("127.0.0.1", 8000, None, Path("x.db"))


def test_a_named_superlink(alone, made):
    place = alone / "no-flower"
    place.mkdir()
    (place / "config.toml").write_text(
        f"""
[superlink]
default = "lan"
[superlink.lan]
address = "10.0.0.5:8000"
root-certificates = "{made / "ca.crt"}"
[superlink.here]
address = "127.0.0.1:8000"
insecure = true
[superlink.local]
address = ":local:"
"""
    )
    assert home.find("lan", None) == home.Connection("10.0.0.5:8000", made / "ca.crt", False)
    assert home.find("here", None).plain
    for name, words in (
        ("lam", "did you mean 'lan'"),
        ("local", "Flower's simulator; use fedpn run"),
    ):
        with pytest.raises(UserError, match=words):
            home.find(name, None)
    with pytest.raises(UserError, match="--ca goes with HOST:PORT"):
        home.find("lan", made / "ca.crt")


def test_an_address_says_how_it_is_spoken_to(made):
    assert home.find("127.0.0.1:8000", None).plain
    assert not home.find("127.0.0.1:8000", made / "ca.crt").plain
    assert not home.find("10.0.0.5:8000", None).plain


@contextlib.contextmanager
def _listening(answer, context=None):
    """A server that gives every caller the same answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)

        def serve():
            with contextlib.suppress(OSError):
                caller, _ = server.accept()
                with caller, context.wrap_socket(caller, True) if context else caller as stream:
                    stream.recv(65536)
                    stream.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_node_waits_for_its_superlink_until_asked_to_end(alone):
    """It starts nothing before somebody answers, and ends in peace."""
    words = ["flower", "supernode", "--superlink", "127.0.0.1:1", "--state", "s", "--data", "."]
    command = [sys.executable, "-m", "fedpn.cli.main", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as node:
        assert "Connection refused; waiting for it" in node.stderr.readline()
        node.terminate()
        assert node.wait(120) == 0


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def test_what_is_wrong_with_a_superlink_is_told(made):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "superlink" / "server.crt", made / "superlink" / "server.key")
    with _listening(OK) as address:
        health.check(address, None, plain=True)
    with _listening(OK, context) as address:
        health.check(address, made / "ca.crt", plain=False)
    for answer, secure, ca, plain, words in (
        (b"", False, None, True, "no SuperLink"),
        (b"SSH-2.0\r\n", False, None, True, "no SuperLink"),
        (OK.replace(b"200", b"404"), False, None, True, "/health is 404"),
        (OK, False, made / "ca.crt", False, "does not speak TLS"),
        (OK, True, None, False, "give its own with --ca"),
        (OK, True, None, True, "no SuperLink answers|wants TLS"),
    ):
        server = _listening(answer, context if secure else None)
        with server as address, pytest.raises(UserError, match=words):
            health.check(address, ca, plain)
    with (
        _listening(OK.replace(b"200", b"502")) as address,
        pytest.raises(health.NoAnswer, match="behind the proxy"),
    ):
        health.check(address, None, plain=True)
    with pytest.raises(health.NoAnswer, match="Connection refused"):
        health.check("127.0.0.1:1", None, plain=True)


LOG = """INFO :      Starting
fedpn-event: {"stage": "federate", "done": 1, "of": 2, "loss": 0.5}
fedpn-event: {"warning": "a node is late"}
fedpn-event: {broken
INFO :      fedpn-event: {"stage": "federate", "done": 2, "of": 2, "loss": null}
"""


def _flwr(tmp_path, monkeypatch, logs, status="finished:completed", details="N/A"):
    """Puts a tool in the place of flwr that says what it is told, each log once."""
    for number, log in enumerate(logs):
        (tmp_path / f"log-{number}").write_text(log)
    tool = tmp_path / "flwr"
    tool.write_text(
        f"""#!{sys.executable}
import json, pathlib, sys
place = pathlib.Path({str(tmp_path)!r})
if sys.argv[1] == "log":
    count = place / "count"
    number = int(count.read_text()) if count.exists() else 0
    count.write_text(str(number + 1))
    print((place / f"log-{{number}}").read_text(), end="")
else:
    over = int((place / "count").read_text()) >= {len(logs)}
    status = {status!r} if over else "running"
    run = {{"status": status, "status-details": {details!r}}}
    print(json.dumps({{"success": True, "runs": [run]}}))
"""
    )
    tool.chmod(0o700)
    for module in (control, launch):
        monkeypatch.setattr(module, "program", lambda name: str(tool))


def test_a_run_is_followed_to_its_end(tmp_path, monkeypatch):
    _flwr(tmp_path, monkeypatch, [LOG + 'fedpn-event: {"done": "/srv/run"}\n'])
    heard, others = [], []
    assert launch.follow(tmp_path, "1", heard.append, others.append) == "/srv/run"
    assert [event.get("done", event.get("warning")) for event in heard] == [1, "a node is late", 2]
    assert others == ["INFO :      Starting", "fedpn-event: {broken"]


def test_a_lost_connection_is_taken_up_where_it_was(tmp_path, monkeypatch):
    half = "".join(LOG.splitlines(keepends=True)[:2])
    _flwr(tmp_path, monkeypatch, [half, LOG + 'fedpn-event: {"done": "/srv/run"}\n'])
    heard = []
    assert launch.follow(tmp_path, "1", heard.append, str) == "/srv/run"
    assert len(heard) == 3


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        ('fedpn-event: {"error": "node-2 is missing"}\n', Failure, "^node-2 is missing$"),
        ('fedpn-event: {"error": "rounds is 0", "status": 2}\n', UserError, "^rounds is 0$"),
        ("", Failure, "the run ended as finished:failed: out of memory"),
    ],
)
def test_how_a_run_failed_is_told(end, kind, words, tmp_path, monkeypatch):
    _flwr(tmp_path, monkeypatch, [LOG + end], "finished:failed", "out of memory")
    with pytest.raises(kind, match=words):
        launch.follow(tmp_path, "1", dict, str)


def test_what_flwr_cannot_do_is_one_line(tmp_path, monkeypatch):
    tool, answer = tmp_path / "flwr", tmp_path / "answer"
    answer.write_text(json.dumps({"success": False, "error-message": "Using x\n\n[code: 9] No."}))
    for script, words in (
        (f"cat {answer}", "flwr ls: .code: 9. No.$"),
        ("echo 'Traceback'; echo '╭──╮'; echo '│ bad option │' >&2; exit 2", "bad option"),
        ("echo '404 for /start-run'; echo 'For more information check: x'", "404 for /start-run"),
        ("true", "no word of why"),
    ):
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o700)
        monkeypatch.setattr(control, "program", lambda name: str(tool))
        with pytest.raises(Failure, match=words) as failure:
            control.ask(tmp_path, "ls")
        assert "\n" not in str(failure.value)


def test_a_failure_of_flowers_is_one_of_ours(alone, capsys, monkeypatch):
    (alone / "c.toml").write_text("clients = 3\n")
    monkeypatch.setattr(health, "check", lambda *connection: None)

    def fail(*arguments):
        raise Failure("flwr run: No.")

    monkeypatch.setattr(control, "start", fail)
    arguments = ["flower", "run", "c.toml", "--superlink", "localhost:1", "--out", "o"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "fedpn: flwr run: No.\n"


@pytest.mark.parametrize("status", [0, 130])
def test_the_demo_tells_what_it_keeps(status, alone, capsys, monkeypatch):
    up = SimpleNamespace(open=lambda: alone)
    monkeypatch.setattr(demo, "Federation", lambda place, nodes: contextlib.nullcontext(up))
    monkeypatch.setattr(flower_run, "_follow", lambda *arguments: status)
    assert main(["flower", "demo"]) == status
    assert capsys.readouterr().out == (
        "nothing is kept; --keep DIR keeps certificates, logs, nodes and the run\n"
    )
    assert main(["flower", "demo", "--keep", "kept"]) == status
    assert f"kept: {alone / 'kept'} " in capsys.readouterr().out
    assert (alone / "kept").is_dir()


FAMILY = """
import subprocess, sys, time
# Like Flower's: one child in its session, one in another, one that will not end in peace.
for detached, code in ((False, ""), (True, ""), (True, "import signal; signal.signal(15, 1)")):
    if code:
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    subprocess.Popen(
        [sys.executable, "-c", code + "\\nimport time; print('up', flush=True); time.sleep(600)"],
        start_new_session=detached,
    )
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
class TestFamily:
    """A program that starts others is taken down with all of them."""

    @pytest.fixture
    def child(self, tmp_path):
        log = tmp_path / "log"
        with Child("family", [sys.executable, "-c", FAMILY], os.environ, log) as child:
            child.wait_until(lambda: log.read_text().count("up") == 4, 120)
            assert len(child.family()) == 4
            yield child

    def test_in_peace_or_by_force(self, child):
        child.stop(grace=1.0)
        assert not child.family()
        assert not child.alive

    def test_at_once(self, child):
        child.kill()
        assert not child.family()

    def test_a_family_within_a_family(self, tmp_path):
        code = (
            "import os, sys, time; from pathlib import Path\n"
            "from fedpn.flower.deploy.processes import Child\n"
            "code = 'import time; time.sleep(600)'\n"
            "inner = Child('inner', [sys.executable, '-c', code], os.environ, Path('inner'))\n"
            "print(inner.mark, flush=True); time.sleep(600)"
        )
        log = tmp_path / "log"
        command = ["env", "-C", str(tmp_path), sys.executable, "-c", code]
        with Child("outer", command, os.environ, log) as outer:
            outer.wait_until(lambda: "\n" in log.read_text(), 120)
            inner = log.read_text().strip()
            assert len(marked(inner)) == 1
            assert set(marked(inner)) < set(outer.family())
            outer.kill()
        assert not marked(inner)

    def test_after_the_first_is_gone(self, child):
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait()
        assert len(child.family()) == 3
        child.stop(grace=1.0)
        assert not child.family()


def test_a_program_that_does_not_come_up_is_told_with_its_last_words(tmp_path):
    log = tmp_path / "log"
    for code, words in (
        ("print('no disk'); raise SystemExit(3)", "link ended with status 3:\nno disk"),
        ("import time; print('hm', flush=True); time.sleep(60)", "not ready in 1 s:\nhm"),
    ):
        log.unlink(missing_ok=True)
        started = Child("link", [sys.executable, "-c", code], os.environ, log)
        with started as child, pytest.raises(Failure, match=words):
            child.wait_until(lambda: "hm" in log.read_text(), 120.0)
            child.wait_until(lambda: False, 1.0)
        assert not marked(child.mark)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such request")
def test_a_program_ends_with_whoever_started_it(tmp_path):
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from fedpn.flower.deploy.processes import Child\n"
        "child = Child('x', [sys.executable, '-c', 'import time; time.sleep(600)'], os.environ, "
        "Path('log'))\n"
        "print(child.mark, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as starter:
        mark = starter.stdout.readline().strip()
        assert len(marked(mark)) == 1
        starter.kill()
    until = time.monotonic() + 120
    while marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not marked(mark)


def test_what_runs_for_weeks_is_small():
    code = (
        "import sys\nfrom fedpn.flower.deploy import link, node\nfrom fedpn.cli.main import main\n"
        "print([m for m in ('torch', 'numpy', 'flwr', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_help_needs_nothing_heavy():
    code = (
        "import sys\nfrom fedpn.cli.main import main\n"
        "try: main(['flower', 'run', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'flwr', 'cryptography', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
