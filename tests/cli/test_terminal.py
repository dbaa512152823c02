"""What terminals see and pipes do not, which fedpn this is, and how paces are told."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedpn
from fedpn.cli import version
from fedpn.cli.console import Display
from fedpn.data.sources import download

ROOT = Path(fedpn.__file__).parents[2]
COLOUR = re.compile(r"\x1b\[[0-9;]*[34][0-9][0-9;]*m")
SHOW = """
from fedpn.cli.console import Display
with Display() as display:
    display.say("a note")
    for i in range(4):
        display.progress("federate", i, 3, loss=0.5)
"""


def on_a_terminal(code, **environment):
    """What a program writes to a terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    told = kept | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment
    subprocess.run([sys.executable, "-c", code], stderr=theirs, env=told, check=True)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    return said.decode()


def test_colours_are_for_terminals_that_want_them():
    assert COLOUR.search(on_a_terminal(SHOW))
    bare = on_a_terminal(SHOW, NO_COLOR="1")
    assert not COLOUR.search(bare)
    assert "federated rounds" in bare and "a note" in bare
    ran = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert "\x1b" not in ran.stderr and "federated rounds 3/3" in ran.stderr


def test_rounds_are_told_with_their_pace_and_the_time_left(capsys, monkeypatch):
    clock = iter([0.0, 100.0, 200.0, 201.0])
    monkeypatch.setattr("fedpn.cli.console.time.monotonic", lambda: next(clock))
    display = Display()
    display.progress("federate", 1, 100)
    display.progress("federate", 51, 100, loss=0.25)
    display.progress("federate", 52, 1000, **{"left out": 2})
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "federated rounds 1/100"
    assert said[1] == "federated rounds 51/100  loss 0.250  0.5 rounds/s  2 min left"
    assert said[2] == "federated rounds 52/1000  left out 2  0.26 rounds/s  62 min left"


def test_a_download_is_told_without_a_terminal(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 10.0])
    monkeypatch.setattr(download.time, "monotonic", lambda: next(clock))
    lines = download._Lines("mnist.npz")
    lines.total = 40_000_000
    lines.update(1_000_000)
    lines.update(9_000_000)
    said = capsys.readouterr().err
    assert said == "mnist.npz: 10.0 of 40.0 MB  1.0 MB/s  30 s left\n"
    lines.reset()
    assert lines.done == 0


def test_it_runs_as_a_module():
    ran = subprocess.run(
        [sys.executable, "-m", "fedpn", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == version.version()
    assert ran.stdout.startswith(f"fedpn {fedpn.__version__}")


def git(*words, place):
    names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    ran = subprocess.run(
        ["git", "-C", str(place), *names, *words], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_the_commit_of_a_checkout(tmp_path):
    assert version._of_checkout(tmp_path) == ""
    (tmp_path / "src" / "fedpn").mkdir(parents=True)
    (tmp_path / "src" / "fedpn" / "a.py").write_text("")
    git("init", "-q", place=tmp_path)
    assert version._of_checkout(tmp_path) == ""  # nothing is committed yet
    git("add", ".", place=tmp_path)
    git("commit", "-qm", "a", place=tmp_path)
    assert version._of_checkout(tmp_path) == git("rev-parse", "HEAD", place=tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [("f7a1ca3b2d4e6f\n", " (f7a1ca3b2d4e)"), ("<b>unknown", ""), ("", ""), ("é", "")],
)
def test_the_commit_that_a_build_wrote_down(tmp_path, monkeypatch, text, told):
    (tmp_path / "_commit.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(version, "files", lambda package: tmp_path)
    monkeypatch.setattr(version, "_of_checkout", lambda root: "")
    assert version.version() == f"fedpn {fedpn.__version__}{told}"
