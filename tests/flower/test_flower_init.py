"""The config that people begin from: it says what each setting is for, and means what it says."""

import re
import tomllib

import pytest

from fedpn.cli.commands.flower_init import OTHERS, SIMULATED
from fedpn.cli.main import main
from fedpn.runs.config import resolve, to_tree
from fedpn.runs.glossary import commented

CONFIGS = [
    {},
    {"algorithm": "analytic", "dataset": "mnist"},
    {"algorithm": "ditto", "dataset": 'it\'s "mine".csv', "clients": 4},
    {"data": {"classes": ["a", 'b"c', "d"]}, "faults": {"dropout": 0.5}, "engine": {"cohort": 2}},
    {"data": {"without": ["x"], "shift": "rotate"}, "model": {"frozen": True}},
]


@pytest.mark.parametrize("tree", CONFIGS)
def test_it_reads_back_as_the_same_config(tree):
    config = resolve([tree])
    text = commented(config, OTHERS, SIMULATED)
    assert resolve([tomllib.loads(text)]) == config
    assert max(map(len, text.splitlines())) <= 120


def test_what_only_a_simulation_has_is_left_out_until_it_is_set():
    usual = commented(resolve([{}]), OTHERS, SIMULATED)
    changed = commented(resolve([{"faults": {"dropout": 0.5}}]), OTHERS, SIMULATED)
    assert "dropout" not in usual and "attackers" not in usual
    assert "dropout = 0.5" in changed
    tree = to_tree(resolve([{}]))
    for name in SIMULATED:  # none has been renamed
        section, key = name.split(".")
        assert key in tree[section]


def test_every_setting_that_has_words_has_them_above():
    text = commented(resolve([{}]), OTHERS, SIMULATED)
    assert "# weight of the log-likelihood\ngamma = 0.01\n" in text
    assert '# see `fedpn algorithms`, or file.py:Class of your own\nalgorithm = "fedpn"\n' in text


@pytest.mark.parametrize(
    ("name", "other"), [(n, o) for n, others in OTHERS.items() for o in others]
)
def test_another_choice_is_one(name, other):
    """Each commented line, put in the place of the setting above it, is a config that is taken."""
    text = commented(resolve([{}]), OTHERS, SIMULATED)
    key = name.rpartition(".")[2]
    line = f"# {key} = {other}"
    assert line in text
    before, _, after = text.partition(line)
    start = before.rindex(f"\n{key} = ")
    changed = before[: start + 1] + before[start + 1 :].partition("\n")[2] + line[2:] + after
    tree = tomllib.loads(changed)
    value = tomllib.loads(f"{key} = {other}")[key]
    section = tree[name.partition(".")[0]] if "." in name else tree
    assert section[key] == value
    if value == "private":  # as its words say
        tree["fedpn"]["optimizer_state"] = "reset"
    assert resolve([tree]) != resolve([{}])


def test_init_writes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["flower", "init", "fed", "--clients", "4", "--set", "train.batch=8"]) == 0
    text = (tmp_path / "fed" / "fedpn.toml").read_text()
    config = resolve([tomllib.loads(text)])
    assert (config.clients, config.train.batch, config.rounds) == (4, 8, 20)
    assert len(re.findall(r"^# ", text, re.M)) > 50
