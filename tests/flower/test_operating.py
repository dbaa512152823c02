"""What an operator asks of a SuperLink, and requests to end at any moment."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedpn.cli.main import main
from fedpn.flower.deploy import certs, control, health, launch
from fedpn.flower.deploy.interrupts import interruptible, whole
from fedpn.flower.deploy.processes import Child, free_port

CONNECTION = ["--superlink", "localhost:1"]


@pytest.fixture
def flwr(tmp_path, monkeypatch):
    """A tool in the place of flwr that knows some runs, and notes what it is asked."""
    tool = tmp_path / "flwr"
    tool.write_text(
        f"""#!{sys.executable}
import json, pathlib, sys
place = pathlib.Path({str(tmp_path)!r})
runs = json.loads((place / "runs").read_text())
with (place / "asked").open("a") as file:
    print(*sys.argv[1:], file=file)
if sys.argv[1] == "stop":
    for run in runs:
        run["status"] = "finished:stopped" if run["run-id"] == sys.argv[2] else run["status"]
    (place / "runs").write_text(json.dumps(runs))
if "--run-id" in sys.argv:
    runs = [run for run in runs if run["run-id"] == sys.argv[sys.argv.index("--run-id") + 1]]
print(json.dumps({{"success": True, "runs": runs}}))
"""
    )
    tool.chmod(0o700)
    monkeypatch.setattr(control, "program", lambda name: str(tool))
    monkeypatch.setattr(health, "check", lambda *connection: None)

    def know(*runs):
        told = [
            {"run-id": number, "status": status, "status-details": "N/A", "pending-at": f"{i}"}
            for i, (number, status) in enumerate(runs)
        ]
        (tmp_path / "runs").write_text(json.dumps(told))
        return tmp_path / "asked"

    return know


def test_the_run_in_flight_is_stopped(flwr, capsys):
    asked = flwr(("7", "finished:completed"), ("8", "running"))
    assert main(["flower", "stop", *CONNECTION]) == 0
    assert "stopped run 8; fedpn flower run … --resume" in capsys.readouterr().out
    assert any(line.startswith("stop 8 ") for line in asked.read_text().splitlines())


@pytest.mark.parametrize(
    ("runs", "words", "said"),
    [
        ([("7", "finished:failed")], [], "none is in flight"),
        ([("7", "running"), ("8", "pending")], [], "say which RUN to stop: in flight are 7, 8"),
        ([("7", "running")], ["8"], "no run 8 is in flight there; in flight are 7"),
        ([("7", "running")], ["ab12"], "must be the number that Flower gave the run"),
    ],
)
def test_what_cannot_be_stopped(runs, words, said, flwr, capsys):
    asked = flwr(*runs)
    assert main(["flower", "stop", *words, *CONNECTION]) == 2
    assert said in capsys.readouterr().err
    assert not asked.exists() or "stop" not in asked.read_text()


def test_a_request_to_end_is_heard_as_ctrl_c():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_begun_is_done_whole(number):
    done = []
    with pytest.raises(KeyboardInterrupt), whole():
        os.kill(os.getpid(), number)
        done.append("submitted")
    assert done == ["submitted"]
    with whole():
        done.append("again")
    assert done == ["submitted", "again"]


@pytest.mark.parametrize("moment", ["submitting", "following"])
def test_a_run_that_is_interrupted_is_stopped_by_its_number(moment, monkeypatch, capsys, tmp_path):
    """Also where the request came while the run was being submitted."""
    stopped = []

    def submit(*order):
        if moment == "submitting":
            os.kill(os.getpid(), signal.SIGTERM)
        return "17"

    def follow(*run):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    monkeypatch.setattr(launch, "submit", submit)
    monkeypatch.setattr(launch, "follow", follow)
    monkeypatch.setattr(control, "stop", lambda home, run: stopped.append(run))
    monkeypatch.setattr(health, "check", lambda *connection: None)
    (tmp_path / "c.toml").write_text("clients = 3\n")
    words = ["flower", "run", str(tmp_path / "c.toml"), *CONNECTION, "--out", str(tmp_path / "o")]
    assert main(words) == 130
    assert stopped == ["17"]
    assert "go on with the same command and --resume" in capsys.readouterr().err


def test_ctrl_c_after_the_end_is_heard_by_nobody():
    """PyTorch takes its time to go; a program that has done its work says nothing any more."""
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv = ['fedpn']\n"
        "from fedpn.cli.main import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_flowers_tool_does_not_hear_ctrl_c(tmp_path, monkeypatch):
    """Of a terminal it would, and say so in the middle of a registration."""
    tool = tmp_path / "flwr"
    tool.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        'print(json.dumps({"success": True, "session": os.getsid(0), "pid": os.getpid()}))\n'
    )
    tool.chmod(0o700)
    monkeypatch.setattr(control, "program", lambda name: str(tool))
    told = control.ask(tmp_path, "ls")
    assert told["session"] == told["pid"] != os.getsid(0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux tells them")
def test_a_real_superlink_bars_a_node_and_takes_its_new_key(tmp_path, capsys):
    place, port = tmp_path / "certs", free_port()
    certs.make(place, 2)
    keys = place / "superlink" / "nodes"
    connection = ["--superlink", f"127.0.0.1:{port}", "--ca", str(place / "ca.crt")]
    words = ["superlink", "--certs", str(place / "superlink"), "--port", str(port)]
    command = [str(Path(sys.executable).parent / "fedpn"), "flower", *words]
    variables = os.environ | {"PYTHONPATH": str(Path(control.__file__).parents[3])}
    database = ["--database", str(tmp_path / "x.db")]
    with Child("superlink", [*command, *database], variables, tmp_path / "log") as link:
        link.wait_until(lambda: "is ready" in link.tail(200), 400)
        assert _listed(connection, capsys) == {"node-0", "node-1"}
        assert main(["flower", "unregister", "node-1", str(keys / "node-0.pub"), *connection]) == 0
        assert _listed(connection, capsys) == set()
        assert main(["flower", "register", str(keys / "node-1.pub"), *connection]) == 2
        assert "was barred, which is for good" in capsys.readouterr().err
        assert main(["flower", "certs", str(place), "--rotate", "node-1"]) == 0
        assert main(["flower", "register", str(keys / "node-1.pub"), *connection]) == 0
        assert _listed(connection, capsys) == {"node-1"}
        assert main(["flower", "doctor", "--certs", str(place), *connection[:2]]) == 0
        assert "ok    clock        is that of the SuperLink" in capsys.readouterr().out
        assert main(["flower", "stop", *connection]) == 2
        link.process.send_signal(signal.SIGINT)
        assert link.process.wait(180) == 0
        assert not link.family()
    assert "Traceback" not in link.tail(1000)


def _listed(connection, capsys):
    capsys.readouterr()
    assert main(["flower", "unregister", *connection]) == 0
    return {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}
