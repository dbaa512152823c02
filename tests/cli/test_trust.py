"""One rule everywhere: code that a file names is run with --trust alone, what is typed without."""

import json
import sys
from pathlib import Path

import pytest

import fedpn
from fedpn.cli.main import main
from fedpn.core.settings import named_code, read_toml
from fedpn.flower.app.policy import Policy, refuse_code
from fedpn.runs import pipeline
from fedpn.runs.config import resolve
from fedpn.runs.membership import forget, join, update

CODE = """
from pathlib import Path

import fedpn

Path("ran").touch()


class Mine(fedpn.FedAvg):
    pass
"""
SMALL = """
dataset = "digits"
clients = 3
rounds = 1
[train]
steps = 1
"""
NAMED = 'algorithm = "mine.py:Mine"\n'
SHORT = 'algorithm = "fedavg"\nhead = "mine.py:Mine"\n'  # for head.kind
FLOWER = ["flower", "run", "c.toml", "--superlink", "127.0.0.1:1", "--out", "/nowhere"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    yield
    sys.modules.pop("mine", None)


def ran():
    return Path("ran").exists()


@pytest.mark.parametrize("named", [NAMED, SHORT])
@pytest.mark.parametrize(
    "command",
    [
        ["run", "c.toml", "--out", "run"],
        ["sweep", "c.toml", "--over", "method.lr=0.1", "--out", "s"],
        FLOWER,
    ],
    ids=lambda words: words[0],
)
def test_a_config_runs_no_code_unless_it_is_trusted(named, command, capsys):
    Path("c.toml").write_text(named + SMALL)
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "c.toml names code of its own (mine.py:Mine)" in told and "add --trust" in told
    assert not ran() and not Path("run").exists()


def test_what_is_trusted_or_typed_is_run():
    Path("c.toml").write_text(NAMED + SMALL)
    assert main(["run", "c.toml", "--trust", "--out", "a"]) == 0
    assert ran()
    assert main(["run", "c.toml", "--algorithm", "mine.py:Mine", "--out", "b"]) == 0
    Path("plain.toml").write_text(SMALL)
    assert main(["run", "plain.toml", "--algorithm", "mine.py:Mine", "--out", "c"]) == 0
    assert main(["run", "a/config.toml", "--out", "d"]) == 2
    over = ["--over", "method.lr=0.1", "--seeds", "1", "--out", "s"]
    assert main(["sweep", "c.toml", "--trust", *over]) == 0
    assert main(["run", "s/best.toml", "--out", "e"]) == 2


def test_the_command_that_a_sweep_prints_says_it(capsys):
    Path("c.toml").write_text(NAMED + SMALL)
    over = ["--over", "method.lr=0.1", "--seeds", "1", "--out", "s"]
    assert main(["sweep", "c.toml", "--trust", *over]) == 0
    assert "fedpn run c.toml --trust " in capsys.readouterr().out


@pytest.mark.parametrize("change", [join, update, forget])
def test_a_run_that_was_edited_to_name_code_runs_none_of_it(change, capsys):
    """In its config; from Python as from the command line."""
    run = Path("run")
    fedpn.run(run, dataset="digits", algorithm="analytic", clients=3, head__filters=4)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('"analytic"', '"mine.py:Mine"', 1))
    more = ("0",) if change is forget else ("rows.npz", "0")
    with pytest.raises(fedpn.UserError, match="add --trust"):
        change(run, *more, Path("out"))
    with pytest.raises(fedpn.UserError, match=r"--resume: run names code.*add --trust"):
        pipeline.run(
            resolve([read_toml(run / "config.toml") | {"algorithm": "analytic"}]), run, True
        )
    assert main(["run", "--resume", "--out", "run"]) == 2
    assert not ran()


def test_a_node_knows_the_short_form_too():
    """It executed `head` where its policy says that it executes nothing."""
    asked = {"algorithm": "fedavg", "head": "mine.py:Mine"}
    assert named_code(asked) == {"head": "mine.py:Mine"}
    with pytest.raises(fedpn.UserError, match="executes no code"):
        refuse_code(json.dumps(asked), Policy())
