"""Flower's programs when a part of them fails: played by small ones that say what Flower's say."""

import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flwr.supernode import fleet_http_connection, start_client_internal

from fedpn.core.errors import UserError
from fedpn.flower.deploy import link, node, programs
from fedpn.flower.deploy.home import Connection
from fedpn.flower.deploy.processes import Failure, free_port

LIVES = """
import os, signal, sys, time
from pathlib import Path

place = Path({place!r})
lives = place / "lives"
life = len(lives.read_text().split()) if lives.exists() else 0
with lives.open("a") as file:
    file.write(sys.argv[sys.argv.index("--port") + 1] + chr(10))
told = {told!r}
if life < len(told):
    text, stays = told[life]
    print(text, flush=True)
    if stays:
        time.sleep(600)
    sys.exit(3)
os.kill(os.getppid(), signal.SIGTERM)  # whoever looks on asks to end
time.sleep(600)
"""
JOINED = "INFO :      SuperNode ID: 7"
DROPPED = "INFO :      Run ID 1 is not in `RUNNING` status. Ignoring message ab12."
LATE = "INFO :      Run ID 1 is not in `RUNNING` status. Ignoring reply message ab12."
SHUT = "[code: 2004] no"
TAKEN = "ERROR:    [Errno 98] error while attempting to bind: address already in use"


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serves a node whose SuperNode says one thing in each of its lives, then is asked to end."""
    monkeypatch.setattr(node, "check", lambda *words: None)
    monkeypatch.setattr(node, "PAUSE", 0.01)
    idle = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(node, "worker", lambda port, state: idle)

    def serve(*told, port=None, patience=90.0):
        tool = tmp_path / "flower-supernode"
        tool.write_text(LIVES.format(place=str(tmp_path), told=told))
        monkeypatch.setattr(programs, "program", lambda name: str(tool))
        said = []
        link = Connection("127.0.0.1:1", None, plain=True)
        node.serve(link, None, port, {"name": "x"}, tmp_path / "state", said.append, patience)
        return said, (tmp_path / "lives").read_text().split()

    return serve


def test_a_node_that_dropped_a_message_is_started_anew(serve):
    """Its process is well and would stay: from then on it would answer one message late."""
    said, lives = serve((f"{JOINED}\n{DROPPED}", True))
    assert said == ["the SuperNode dropped a message of a run that was stopped; starting it anew"]
    assert len(lives) == 2


def test_an_answer_that_came_too_late_is_no_reason(serve, monkeypatch):
    """The SuperNode has cleaned up after it."""
    staying = node.Foreground.stay

    def stay(self, child, until, meanwhile):
        patience = time.monotonic() + 120
        while node.JOINED not in self.heard and time.monotonic() < patience:
            time.sleep(0.05)
        time.sleep(0.5)
        assert until not in self.heard
        self.asked = True
        staying(self, child, until, meanwhile)

    monkeypatch.setattr(node.Foreground, "stay", stay)
    said, lives = serve((f"{LATE}\n{JOINED}", True))
    assert not said
    assert len(lives) == 1


def test_a_node_that_was_let_in_and_ends_is_started_anew(serve):
    said, lives = serve((JOINED, False), (JOINED, False), patience=0.0)
    assert said == ["the SuperNode ended with status 3; trying again in 0 s"] * 2
    assert len(lives) == 3


def test_a_node_that_is_shut_out_tries_until_its_patience_is_over(serve):
    said, lives = serve((SHUT, False))
    assert "does not let this node in" in said[0]
    assert len(lives) == 2
    with pytest.raises(UserError, match="register its public key"):
        serve(*[(SHUT, False)] * 9, patience=0.0)


def test_a_port_that_another_took_meanwhile_is_changed(serve, tmp_path):
    said, lives = serve((TAKEN, False))
    assert said == ["another program took the SuperNode's port; trying again in 0 s"]
    assert len(set(lives)) == 2
    (tmp_path / "lives").unlink()
    with pytest.raises(Failure, match="ended with status 3"):
        serve((TAKEN, False), port=free_port())


def test_a_node_that_the_superlink_failed_tries_again(serve):
    """As where its database was locked: at its first start, and after it was let in."""
    failed = "Failed to initialize the connection to the SuperLink.\nServer error '500'"
    said, lives = serve((failed, False), (JOINED, False), (failed, False), ("killed", False))
    assert said == ["the SuperNode ended with status 3; trying again in 0 s"] * 4
    assert len(lives) == 5
    with pytest.raises(Failure, match="ended with status 3"):
        serve(*[(failed, False)] * 9, patience=0.0)


def test_a_node_that_never_came_up_is_a_failure(serve):
    with pytest.raises(Failure, match="ended with status 3"):
        serve(("no such option", False))


def test_a_worker_that_ends_is_started_anew(serve, tmp_path, monkeypatch):
    """Killed, say, by a machine without memory: its SuperNode stays, and so does the node."""
    code = f"open({str(tmp_path / 'workers')!r}, 'a').write('x'); import os; os._exit(9)"
    monkeypatch.setattr(node, "worker", lambda port, state: [sys.executable, "-c", code])
    monkeypatch.setattr(node, "WORKER", 0.0)
    staying = node.Foreground.stay

    def stay(self, child, until, meanwhile):
        def watch():
            meanwhile()
            workers = tmp_path / "workers"
            often = workers.exists() and len(workers.read_text()) >= 3
            self.asked = often and node.JOINED in self.heard

        staying(self, child, until, watch)

    monkeypatch.setattr(node.Foreground, "stay", stay)
    said, lives = serve((JOINED, True))
    assert said[:2] == ["the worker ended with status 9; starting it anew"] * 2
    assert len(lives) == 1


@pytest.mark.parametrize("up", [True, False])
def test_a_superlink_that_came_up_and_ends_is_started_anew(up, tmp_path, monkeypatch):
    tool = tmp_path / "flower-superlink"
    tool.write_text(LIVES.format(place=str(tmp_path), told=[("", False)]))
    monkeypatch.setattr(programs, "program", lambda name: str(tool))
    monkeypatch.setattr(link, "answers", lambda *words: up)
    monkeypatch.setattr(link, "PAUSE", 0.01)
    said, port = [], free_port()
    if not up:
        with pytest.raises(Failure, match="SuperLink ended with status 3"):
            link.serve("127.0.0.1", port, None, tmp_path / "x.db", said.append)
        return
    link.serve("127.0.0.1", port, None, tmp_path / "x.db", said.append)
    ready = f"the SuperLink is ready at 127.0.0.1:{port}; Ctrl-C ends it"
    assert said == [ready, "the SuperLink ended with status 3; starting it anew", ready]
    assert len((tmp_path / "lives").read_text().split()) == 2


def test_flower_still_says_what_is_listened_for():
    source = inspect.getsource(start_client_internal)
    assert node.JOINED in source
    assert node.FAILED in inspect.getsource(fleet_http_connection)
    assert f"status. {node.DROPPED}" in source


def _run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    tool = tmp_path / "tool"
    tool.write_text(code)
    command = [*programs._SCRIPT, str(tool), "a", "--b"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)


@pytest.mark.parametrize(("code", "status"), [("", 0), ("sys.exit()", 0), ("sys.exit(3)", 3)])
def test_a_program_has_its_words_and_its_status(code, status, tmp_path):
    done = _run(tmp_path, f"import sys\nprint(sys.argv[1:], __name__)\n{code}")
    assert done.stdout == "['a', '--b'] __main__\n"
    assert done.returncode == status


def test_a_program_ends_with_its_work_though_a_thread_goes_on(tmp_path):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    assert _run(tmp_path, code).returncode == 0
    for last, words in (("raise ValueError('no')", "ValueError: no\n"), ("exit('no')", "no\n")):
        done = _run(tmp_path, code + last)
        assert done.returncode == 1
        assert done.stderr.endswith(words)


def test_a_program_ends_with_a_thread_that_fails(tmp_path):
    """It is asked to end, so that it can still take its leave."""
    code = (
        "import signal, sys, threading, time\n"
        "signal.signal(signal.SIGTERM, lambda *about: sys.exit(5))\n"
        "threading.Thread(target=sys.exit).start()  # no failure\ntime.sleep(0.5)\n"
        "threading.Thread(target=lambda: 1 / 0, daemon=True).start()\ntime.sleep(600)"
    )
    done = _run(tmp_path, code)
    assert done.returncode == 5
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system does not tell")
def test_a_program_ends_with_a_part_of_it(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, '-c', ''])  # asked how it ended\n"
        "part = subprocess.Popen([sys.executable, '-c', ''])\ntime.sleep(600)"
    )
    done = _run(tmp_path, code)
    assert done.returncode == -signal.SIGTERM
    assert "has ended" in done.stderr


def test_nothing_is_imported_from_where_a_program_starts(tmp_path):
    (tmp_path / "runpy.py").write_text("raise SystemExit(9)")
    assert _run(tmp_path, "").returncode == 0
    assert programs._SCRIPT[0] == sys.executable
