"""Settings: layers, types, bounds, and errors that name the nearest valid thing."""

import sys
import tomllib
from dataclasses import replace
from importlib import resources

import pytest
import tomli_w

import fedpn
from fedpn.algorithms import ALGORITHMS
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.bounds import Bounds
from fedpn.core.errors import UserError
from fedpn.core.settings import build, find_object, parse_setting, read_toml
from fedpn.data.sources.datasets import names
from fedpn.runs.config import Config, preset, resolve, to_tree
from fedpn.runs.glossary import glossary


def test_later_layers_win_over_the_preset():
    config = resolve(
        [{"rounds": 5}, {"train": {"batch": 8}}, {"rounds": 7, "fedpn": {"gamma": 0.5}}]
    )
    assert (config.dataset, config.clients, config.rounds) == ("offices", 10, 7)
    assert (config.train.batch, config.train.steps) == (8, 10)
    assert config.method == FedPN(gamma=0.5, lr=0.02, adapt_steps=300)


def test_the_paper_is_the_default_elsewhere():
    config = resolve([{"dataset": "mine.npz"}])
    assert (config.clients, config.rounds, config.train.batch, config.train.steps) == (
        20,
        100,
        64,
        10,
    )
    assert config == replace(Config(), dataset="mine.npz")
    assert config.method == FedPN()
    assert (config.method.lr, config.method.momentum, config.method.gamma) == (0.01, 0.9, 0.01)


def test_toml_and_back():
    config = resolve([{"dataset": "mnist", "seed": 3, "fedpn": {"loss": "bayesian"}}])
    assert resolve([tomllib.loads(tomli_w.dumps(to_tree(config)))]) == config


def test_the_algorithm_is_that_of_the_method():
    assert Config().algorithm == "fedpn"
    assert replace(Config(), method=ALGORITHMS["ditto"]()).algorithm == "ditto"
    assert to_tree(Config())["algorithm"] == "fedpn"


def test_named_sets_bring_their_presets():
    """Below everything that is said; of the router, only where the network has such a score."""
    config = resolve([{"dataset": "mnist"}])
    assert (config.rounds, config.method.lr, config.method.adapt_steps) == (150, 0.02, 1000)
    assert config.router == "log_density"
    fashion = resolve([{"dataset": "fashionmnist"}])
    assert (fashion.router, fashion.routing.outliers) == ("dirichlet_entropy", 0.3)
    plain = resolve([{"dataset": "fashionmnist", "algorithm": "fedavg"}])
    assert (plain.router, plain.routing.outliers, plain.headline) == ("", 0.3, "global")
    said = {"dataset": "mnist", "rounds": 3, "method": {"lr": 0.5}, "fedpn": {"adapt_steps": 7}}
    config = resolve([said, {"routing": {"router": "msp"}}])
    assert (config.rounds, config.method.lr, config.method.adapt_steps) == (3, 0.5, 7)
    assert (config.router, config.headline) == ("msp", "bayes")
    paper = resolve([{"routing": {"rule": "quantiles"}}])
    assert (paper.router, paper.headline) == ("log_density", "switch")


def test_every_preset_is_of_a_named_set_and_is_understood():
    files = (resources.files("fedpn.runs") / "presets").iterdir()
    sets = sorted(file.name.removesuffix(".toml") for file in files)
    assert sets
    assert set(sets) <= {*names(), "medicalmnist"}  # which is at hand only as an archive
    for dataset in sets:
        for algorithm in ALGORITHMS:
            norm = {"model": {"norm": "batch"}} if algorithm == "fedbn" else {}
            found = resolve([{"dataset": dataset, "algorithm": algorithm, **norm}])
            assert found.algorithm == algorithm
    assert preset("no/mnist", FedPN) == preset("../mnist", FedPN) == {}


def test_a_router_may_be_left_to_the_network_or_left_out():
    assert resolve([]).router == "log_density"
    assert resolve([{"algorithm": "fedavg"}]).router == ""
    none = resolve([{"routing": {"router": "none"}}])
    assert (none.router, none.headline) == ("", "personal")
    for router in ("log_density", "dirichlet_entropy", "mutual_information"):
        with pytest.raises(UserError, match="is of posterior networks, and fedavg trains another"):
            resolve([{"algorithm": "fedavg", "routing": {"router": router}}])


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
        ("algorithm=fedpn.core.trees:Params", "not a frozen dataclass"),
        ("trian.batch=3", r"did you mean 'train\.batch'"),
        ("routing.router=density", "did you mean 'log_density'"),
        ("routing.router=magic", "choose one of"),
        ("routing.rule=quantile", "did you mean 'quantiles'"),
        ("engine.cohort=-1", "at least 0"),
        # What older versions called otherwise is told apart from what is misspelled.
        ("routing.score=log_density", r"routing\.score is called routing\.router now"),
        ("train.cohort=3", r"train\.cohort is called engine\.cohort now"),
        ("train.device=cpu", r"train\.device is called engine\.device now"),
        ("routing.router=entropy", "called dirichlet_entropy .of a softmax: softmax_entropy"),
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


def test_two_files_of_one_name_are_two(tmp_path):
    """Whatever is loaded by that name already."""
    for place, value in (("a", 1), ("b", 2), ("a", 1)):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "same_name.py").write_text(f"thing = {value}")
        assert find_object("x", f"{tmp_path}/{place}/same_name.py:thing", "thing") == value


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


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_are_printed_with_the_words_of_their_annotations(name):
    """Bounds and words share an annotation: neither hides the other."""
    text = glossary(name, "mnist")
    lines = text.splitlines()
    rounds = f"rounds = {150 if ALGORITHMS[name].trains else 0}  # how often clients train"
    assert any(line.startswith(rounds) for line in lines)
    assert 'dataset = "mnist"  # a named set, or a path to your own' in lines
    assert "outliers = 0.1  # the share of rows like its own that a client delegates" in lines
    assert "shrinkage = 0.1  # of its covariances towards that of all classes" in lines
    assert 'covariance = "full"  # full | diagonal; of the router `gaussian`' in lines
    assert "[train]  # A client's work in a round." in lines
    assert any(line.startswith(f"[{name}]  # ") for line in lines)
    assert any(line.startswith("lr = ") and line.endswith("# of local steps") for line in lines)
    assert "Annotated" not in text
