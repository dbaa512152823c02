"""Settings: layers, types, bounds, and errors that name the nearest valid thing."""

import sys
import tomllib

import pytest
import tomli_w

import fedpn
from fedpn.algorithms import ALGORITHMS
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.bounds import Bounds
from fedpn.core.errors import UserError
from fedpn.core.settings import build, parse_setting, read_toml
from fedpn.runs.config import resolve, to_tree
from fedpn.runs.glossary import glossary


def test_later_layers_win_over_the_preset():
    config = resolve(
        [{"rounds": 5}, {"train": {"batch": 8}}, {"rounds": 7, "fedpn": {"gamma": 0.5}}]
    )
    assert (config.dataset, config.clients, config.rounds) == ("digits", 10, 7)
    assert (config.train.batch, config.train.steps) == (8, 10)
    assert config.method == FedPN(gamma=0.5, lr=0.02, adapt_steps=300)


def test_the_paper_is_the_default_elsewhere():
    config = resolve([{"dataset": "mnist"}])
    assert (config.clients, config.rounds, config.train.batch, config.train.steps) == (
        20,
        100,
        64,
        10,
    )
    assert config.method == FedPN()
    assert (config.method.lr, config.method.momentum, config.method.gamma) == (0.01, 0.9, 0.01)


def test_toml_and_back():
    config = resolve([{"dataset": "mnist", "seed": 3, "fedpn": {"loss": "bayesian"}}])
    assert resolve([tomllib.loads(tomli_w.dumps(to_tree(config)))]) == config


def test_the_section_of_another_algorithm_is_checked_and_left():
    assert resolve([{"fedavg": {"lr": 0.5}}]).method.lr == 0.02
    assert resolve([{"algorithm": "fedavg", "fedavg": {"lr": 0.5}}]).method.lr == 0.5
    with pytest.raises(UserError, match=r"fedavg\.lr"):
        resolve([{"fedavg": {"lrr": 0.5}}])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("fedpn.gama=1", r"'fedpn\.gama'; did you mean 'fedpn\.gamma'"),
        ("fedpn.gamma=-1", r"fedpn\.gamma is -1\.0, but must be at least 0"),
        ("fedpn.gamma=nan", "must be a number"),
        ("fedpn.loss=repared", "did you mean 'repaired'"),
        ("fedpn=3", "fedpn is a section"),
        ("rounds=-1", "rounds is -1, but must be at least 0"),
        ("rounds=two", "rounds is 'two', but must be a whole number"),
        ("rounds=1.5", "must be a whole number"),
        ("rounds=true", "must be a whole number"),
        ("clients=0", "must be at least 1"),
        ("train.join=0", "must be above 0 and at most 1"),
        ("model.encoder=lenet", "did you mean 'lenet5'"),
        ("model.density=gauss", "choose one of|did you mean"),
        ("algorithm=fedpm", "did you mean 'fedpn'"),
        ("algorithm=nosuch:Thing", "cannot import"),
        ("algorithm=fedpn.trees:Params", "not a frozen dataclass"),
        ("trian.batch=3", "did you mean 'train'"),
        ("routing.score=density", "did you mean 'log_density'"),
    ],
)
def test_mistakes_are_named(setting, message):
    with pytest.raises(UserError, match=message):
        resolve([parse_setting(setting)])


def test_no_local_work_is_refused():
    with pytest.raises(UserError, match="both 0"):
        resolve([{"train": {"steps": 0}}])


@pytest.mark.parametrize("text", ["fedpn.gamma", "=3", ""])
def test_a_setting_without_its_form(text):
    with pytest.raises(UserError, match="key=value"):
        parse_setting(text)


def test_config_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no config file"):
        read_toml(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(UserError, match="cannot read the config"):
        read_toml(tmp_path / "bad.toml")


def test_ones_own_algorithm(monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom fedpn import FedAvg\n"
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    tilt: float = 0.5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = resolve([{"algorithm": "mine:Mine", "mine": {"tilt": 2}}])
    assert config.method.tilt == 2.0


def test_bounds_in_words():
    assert str(Bounds(high=3)) == "at most 3"
    with pytest.raises(UserError, match="is a section of settings"):
        build(FedPN, 3, "fedpn")


OWN = "from dataclasses import dataclass\nfrom fedpn import FedAvg\n"


def test_an_algorithm_of_ones_own_by_its_file_or_its_class(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    code = OWN + "@dataclass(frozen=True)\nclass Quiet(FedAvg):\n    pass\n"
    (tmp_path / "deep/quietly.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = resolve([{"algorithm": "deep/quietly.py:Quiet"}])
    assert type(config.method).__name__ == "Quiet"
    metrics = fedpn.run(
        tmp_path / "run", algorithm=type(config.method), rounds=1, clients=3, train__steps=1
    )
    assert metrics["algorithm"] == "quietly:Quiet"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_settings_that_are_printed_are_those_of_a_run(name):
    text = glossary(name, "mnist")
    assert resolve([tomllib.loads(text)]) == resolve([{"algorithm": name, "dataset": "mnist"}])
    assert "join = 1.0  # the share of clients in a round" in text
    assert 'rule = "mean"  # mean | median | trimmed' in text
