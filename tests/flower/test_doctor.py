"""Each thing that the doctor looks at, well and broken."""

import datetime
import fcntl
import http.server
import json
import os
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from email.utils import formatdate

import numpy as np
import pytest

import statuses
from fedpn.cli.main import main
from fedpn.flower.deploy import certs
from fedpn.flower.deploy.home import Connection
from fedpn.flower.doctor import machine, papers
from fedpn.flower.doctor.finding import FAIL, OK, WARN
from fedpn.flower.doctor.machine import check_room, check_versions
from fedpn.flower.doctor.papers import check_papers
from fedpn.flower.doctor.places import check_out, check_state
from fedpn.flower.doctor.reach import check_link


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("doctor") / "certs"
    certs.make(place, 2, ["link.example"])
    return place


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "certs")


def bad(findings):
    """What is not well: levels, things and words."""
    return [(f.level, f.what, f.said) for f in findings if f.level != OK]


def test_good_papers_are_good(place):
    for part in (place, place / "superlink", place / "node-0"):
        assert bad(check_papers(part, None)) == []
    assert bad(check_papers(place, "link.example")) == []


def _over(path):
    """A certificate that says nothing."""
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


BREAK = {
    "open key": (
        lambda p: (p / "node-0/node.key").chmod(0o644),
        FAIL,
        "can be used by others (0644)",
    ),
    "open place": (lambda p: (p / "superlink").chmod(0o755), WARN, "can be used by others (0755)"),
    "no server": (lambda p: (p / "superlink/server.crt").unlink(), FAIL, "cannot be read"),
    "no certificate": (lambda p: _over(p / "superlink/server.crt"), FAIL, "not a certificate"),
    "another's key": (
        lambda p: shutil.copy(p / "ca.key", p / "superlink/server.key"),
        FAIL,
        "server.key is not the key of server.crt",
    ),
    "another's authority key": (
        lambda p: shutil.copy(p / "superlink/server.key", p / "ca.key"),
        FAIL,
        "ca.key is not the key of ca.crt",
    ),
    "two nodes, one key": (
        lambda p: shutil.copy(p / "superlink/nodes/node-0.pub", p / "superlink/nodes/node-1.pub"),
        FAIL,
        "are one key",
    ),
    "no node's key": (
        lambda p: (p / "node-1/node.key").write_text("x"),
        FAIL,
        "not a key that Flower",
    ),
    "nobody": (lambda p: shutil.rmtree(p / "superlink/nodes"), WARN, "no public key"),
    "no public key": (
        lambda p: (p / "superlink/nodes/node-1.pub").write_text("x"),
        FAIL,
        "cannot be read",
    ),
    "a node's old authority": (
        lambda p: _other(p, "node-1/ca.crt"),
        FAIL,
        "another than the SuperLink's",
    ),
    "another authority": (
        lambda p: _other(p, "superlink/ca.crt"),
        FAIL,
        "is not signed by the ca.crt",
    ),
}


def _other(place, name):
    certs.make(place.parent / "other", 1)
    shutil.copy(place.parent / "other" / "ca.crt", place / name)


@pytest.mark.parametrize("name", BREAK)
def test_bad_papers_are_told(name, place):
    do, level, words = BREAK[name]
    do(place)
    found = bad(check_papers(place, None))
    assert any(f[0] == level and words in f[2] for f in found), found


def test_papers_that_are_none(tmp_path, place):
    assert "not a directory" in bad(check_papers(tmp_path / "no", None))[0][2]
    assert "neither server.crt nor node.key" in bad(check_papers(tmp_path, None))[0][2]
    assert bad(check_papers(place, "other.example"))[0][:2] == ("fail", "names")


@pytest.mark.parametrize(
    ("days", "level", "what", "words"),
    [
        (340, WARN, "server", "ends in 24 days"),
        (400, FAIL, "server", "was valid until"),
        (-1, FAIL, "clock", "is valid from"),
    ],
)
def test_time_goes_by(days, level, what, words, place, monkeypatch):
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return later

    monkeypatch.setattr(papers.datetime, "datetime", Clock)
    found = bad(check_papers(place / "superlink", None))
    assert found[-1][:2] == (level, what)
    assert words in found[-1][2]


def test_versions(monkeypatch):
    assert bad(check_versions()) == []
    said = {f.what: f.said for f in check_versions()}
    assert said["flwr"].endswith("(>=1.41,<1.42)")
    monkeypatch.setattr(machine, "version", lambda name: {"flwr": "1.42.0"}.get(name, "2.13.0+cpu"))
    assert [(f.what, f.way) for f in check_versions() if f.level == FAIL] == [
        ("flwr", "pip install 'flwr>=1.41,<1.42'")
    ]

    def nothing(name):
        raise machine.PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", nothing)
    assert sum(f.level == FAIL for f in check_versions()) == 3


def test_room(tmp_path, monkeypatch):
    for free, level in ((5 * 10**9, OK), (5 * 10**8, WARN), (10**7, FAIL)):
        usage = shutil._ntuple_diskusage(10**10, 0, free)
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda place, usage=usage: usage)
        assert check_room("state", tmp_path / "not" / "yet").level == level


@contextmanager
def answering(behind=None, control=404):
    """One who answers as a SuperLink does, by a clock so many seconds behind, or by none."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response_only(200 if self.path == "/health" else control)
            self.send_header("Content-Length", "0")
            date = "noon" if behind is None else formatdate(time.time() - behind)
            self.send_header("Date", date)
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, OK), (3600, FAIL), (-400, FAIL), (-100, WARN), (None, OK)]
)
def test_the_clock(ahead, level):
    """A node's signature must not be of the future, says Flower, and not be old."""
    with answering(ahead) as address:
        found = {f.what: f for f in check_link(Connection(address, None, True))}
    assert found["superlink"].level == OK
    assert found["clock"].level == level


def test_whether_others_could_submit_runs(monkeypatch):
    monkeypatch.setattr(Connection, "here", False)
    for control, level in ((404, OK), (405, WARN)):
        with answering(0, control) as address:
            assert list(check_link(Connection(address, None, True)))[-1].level == level


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        address = f"127.0.0.1:{port}"
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        assert bad(check_link(Connection(address, None, True)))[0][0] == FAIL  # no SuperLink
    level, _, said = bad(check_link(Connection(address, None, True)))[0]
    assert level == WARN and "the port is free" in said


def test_a_nodes_state(tmp_path):
    place = tmp_path / "state"
    assert bad(check_state(place, 0.0)) == []
    place.mkdir(mode=0o700)
    assert bad(check_state(place, 0.0)) == []
    place.chmod(0o755)
    assert bad(check_state(place, 0.0))[0][:2] == (WARN, "state")
    place.chmod(0o700)
    with (place / "node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert any("at work" in f.said for f in check_state(place, 0.0))
    statuses.write(place, statuses.link(state="refused", why="not registered"), "link.json")
    assert bad(check_state(place, time.time())) == [(FAIL, "status", "refused, not registered")]
    (place / "bundle").mkdir()
    (place / "bundle" / "bundle.json").write_text("{")
    assert bad(check_state(place, time.time()))[-1][:2] == (FAIL, "model")
    (tmp_path / "file").touch()
    assert "not a directory" in bad(check_state(tmp_path / "file", 0.0))[0][2]


def test_a_runs_directory(tmp_path):
    out = tmp_path / "a" / "out"
    assert bad(check_out(out, 0.0)) == []
    statuses.write(out, statuses.finished(warnings=[]))
    (out / "metrics.json").touch()
    assert any("finished run" in f.said for f in check_out(out, time.time()))
    (out / "metrics.json").unlink()
    (out / "config.toml").touch()
    assert bad(check_out(out, time.time())) == [
        (WARN, "out", f"{out} holds a run that ended after 0 rounds")
    ]
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert bad(check_out(out, time.time())) == []
    statuses.write(out, "{")
    assert bad(check_out(out, time.time()))[-1][:2] == (WARN, "status")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_made(tmp_path):
    tmp_path.chmod(0o500)
    assert bad(check_state(tmp_path / "x", 0.0))[0][0] == FAIL


def test_the_command(place, tmp_path, capsys):
    data = tmp_path / "rows.npz"
    rows = np.random.default_rng(0).random((40, 8, 8))
    np.savez(data, x=rows, y=np.arange(40) % 2)
    words = ["flower", "doctor", "--certs", str(place / "node-0"), "--data", str(data)]
    words += ["--state", str(tmp_path / "state")]
    assert main(words) == 0
    assert "ok    data" in capsys.readouterr().out
    data.write_bytes(b"nothing")
    assert main(words) == 1
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fail  data") for line in told)
    assert told[-1].strip().startswith("→ fedpn data check")
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[-1]["level"] == "fail"
    assert main(["flower", "doctor", "--superlink", "nonsense:x"]) == 2
