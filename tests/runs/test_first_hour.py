"""Mistakes of the first hour: each works, or is told with the way out."""

import tomllib

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset

import fedpn
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.data.sources.given import take
from fedpn.federated.listener import Listener
from fedpn.runs.config import resolve

SMALL = {
    "dataset": "digits",
    "algorithm": "fedpn",
    "rounds": 1,
    "clients": 4,
    "data__limit": 600,
    "train__steps": 1,
    "train__batch": 8,
    "method__adapt_epochs": 0,
    "method__adapt_steps": 2,
    "head__filters": 4,
}


class Told(Listener):
    """Keeps what is said."""

    def __init__(self, said):
        self.said = said

    def say(self, text):
        self.said.append(text)


ENCODERS = """
import torch
from torch import nn

class Lstm(nn.Module):
    def __init__(self, shape, dim):
        super().__init__()
        self.rnn = nn.LSTM(shape[-1], dim, batch_first=True)

    def forward(self, x):
        return self.rnn(x[:, 0])[0][:, -1]

class Linear(nn.Module):
    def __init__(self, shape, dim):
        super().__init__()
        self.layer = nn.Linear(torch.Size(shape).numel(), dim)

    def forward(self, x):
        return self.layer(x.flatten(1))

class Item(Linear):
    def forward(self, x):
        return super().forward(x / max(x.abs().max().item(), 1))

class Branch(Linear):
    def forward(self, x):
        z = super().forward(x)
        return 2 * z if z.sum() > 0 else z

class Noisy(Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn(1)

class Broken(Linear):
    def forward(self, x):
        if self.training:
            raise RuntimeError("no such thing")
        return super().forward(x)
"""


@pytest.fixture
def encoders(tmp_path, monkeypatch):
    """A file of encoders in the working directory."""
    (tmp_path / "first_hour_encoders.py").write_text(ENCODERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "first_hour_encoders.py"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("train.lr", "method.lr"),
        ("lr", "method.lr"),
        ("train.learning_rate", "method.lr"),
        ("batch_size", "train.batch"),
        ("data.alpha", "data.beta"),
        ("num_clients", "clients"),
        ("kind", "head.kind"),
        ("rouns", "rounds"),
    ],
)
def test_a_setting_is_found_in_all_sections_and_by_what_others_call_it(wrong, right):
    section, _, name = wrong.rpartition(".")
    layer = {section: {name: 1}} if section else {name: 1}
    with pytest.raises(UserError, match=f"did you mean '{right}'\\?"):
        resolve([layer])


def test_a_section_that_there_is_not_names_those_that_there_are():
    with pytest.raises(UserError, match=r"'qqq\.alike'; choose one of aggregation, algorithm"):
        resolve([{"qqq": {"alike": 1}}])


def test_a_rule_that_a_method_cannot_follow_is_left_and_said(tmp_path):
    asked = SMALL | {"algorithm": "fedavg", "routing__rule": "quantiles"}
    said = []
    run = fedpn.run(tmp_path / "run", listener=Told(said), **asked)
    assert run.metrics["headline"] == "global"
    assert any("routing.rule=quantiles is left: fedavg has no score" in text for text in said)


@pytest.mark.parametrize("turn", [1, -1])
def test_a_head_by_its_name_goes_with_its_settings_in_either_order(turn):
    layers = [{"head": "ridge"}, {"head": {"filters": 7}}]
    head = resolve(layers[::turn]).head
    assert (head.kind, head.filters) == ("ridge", 7)


def test_a_head_by_its_name_goes_with_its_settings_from_python(tmp_path):
    run = fedpn.run(tmp_path / "run", **SMALL, head="ridge")
    head = tomllib.loads((run.path / "config.toml").read_text())["head"]
    assert (head["kind"], head["filters"]) == ("ridge", SMALL["head__filters"])


@pytest.mark.parametrize("name", ["Lstm", "Item", "Branch"])
def test_what_cannot_be_mapped_is_played_one_by_one_with_the_same_result(name, encoders, tmp_path):
    """A cohort of four that falls back gives what cohorts of one give."""
    asked = SMALL | {"model__encoder": f"{encoders}:{name}"}
    said = []
    runs = [
        fedpn.run(tmp_path / str(size), listener=Told(said), **asked, engine__cohort=size)
        for size in (4, 1)
    ]
    assert runs[0].metrics["accuracy"] == runs[1].metrics["accuracy"]
    assert sum("one after the other" in text for text in said) == 1


def test_an_error_names_the_users_own_line(encoders, tmp_path, capsys):
    words = ["--dataset", "digits", "--clients", "3", "--set", f"model.encoder={encoders}:Broken"]
    assert main(["run", *words, "--out", str(tmp_path / "run")]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    line = 1 + ENCODERS.splitlines().index('            raise RuntimeError("no such thing")')
    assert f'{encoders}, line {line}: raise RuntimeError("no such thing")' in message


@pytest.mark.parametrize("cohort", [1, 4])
def test_random_numbers_in_a_step_are_refused_in_words(encoders, tmp_path, cohort):
    """However clients are played: nothing of it could be repeated."""
    asked = SMALL | {"model__encoder": f"{encoders}:Noisy", "engine__cohort": cohort}
    with pytest.raises(UserError, match="draws random numbers in its steps"):
        fedpn.run(tmp_path / "run", **asked)


def test_a_series_is_no_picture_and_the_message_says_what_to_do():
    x = np.random.default_rng(0).normal(size=(20, 6, 32))
    with pytest.raises(UserError, match=r"of series .* give x\.reshape\(len\(x\), -1\)"):
        take((x, np.arange(20) % 2))


class Triples(TorchDataset):
    """Rows, labels and owners, as people write them."""

    classes = ("well", "sick")

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        return torch.full((3,), float(index)), torch.tensor(index % 2), ("Oslo", "Rome")[index // 3]


def test_a_dataset_of_triples_keeps_its_owners():
    found = take(Triples())
    assert found.clients == ("Oslo", "Rome")
    assert found.classes == ("well", "sick")
    np.testing.assert_array_equal(found.client, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(found.y, [0, 1, 0, 1, 0, 1])
