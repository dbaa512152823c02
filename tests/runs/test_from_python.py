"""Everything from Python: data in memory, a run as an object."""

import html
import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedpn
from fedpn.algorithms import base
from fedpn.cli.main import main
from fedpn.data.sources.datasets import load as load_dataset

FAST = {"algorithm": "analytic", "head__filters": 5}


class Net(torch.nn.Module):
    """An encoder as researchers write one."""

    def __init__(self, shape, dim):
        super().__init__()
        self.layers_of_mine = torch.nn.Sequential(
            torch.nn.Conv2d(shape[0], 4, 5, stride=3),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * 8 * 8, dim),
        )

    def forward(self, x):
        return self.layers_of_mine(x)


def halves(labels, clients, seed):
    """A partition of one's own: even rows, odd rows."""
    return [np.arange(len(labels))[start::2] for start in (0, 1)]


@pytest.fixture(scope="module")
def digits():
    found = load_dataset("digits")
    return found.x[:, 0], found.y


class Pairs(torch.utils.data.Dataset):
    """As PyTorch users have data."""

    classes = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class Frame:
    """As much of a data frame as is asked of one, where there is no pandas."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        if isinstance(name, list):
            return np.stack([self._columns[one] for one in name], axis=1)
        return self._columns[name]


def test_arrays_are_data_as_any(digits, tmp_path):
    x, y = digits
    owner = np.array(["Oslo", "Rome", "Lima"])[np.arange(len(y)) % 3]
    run = fedpn.run(tmp_path / "run", dataset=(x, y, owner), **FAST)
    assert run.clients == ("Lima", "Oslo", "Rome")
    assert run["dataset"] == "in memory" and run.metrics["clients"] == 3
    answers = run.predictor("Rome").predict(x[:100])
    assert np.mean([a == str(t) for a, t in zip(answers, y[:100], strict=True) if a]) > 0.85
    again = fedpn.open(tmp_path / "run")
    assert again.metrics == run.metrics and "analytic on in memory" in repr(again)
    with pytest.raises(fedpn.UserError, match="were in memory: go on from Python"):
        fedpn.run(tmp_path / "run", resume=True)
    resumed = fedpn.run(tmp_path / "run", resume=True, dataset=(x, y, owner), **FAST)
    assert resumed.metrics == run.metrics


def test_the_same_rows_in_other_hands_are_the_same_run(digits, tmp_path):
    x, y = digits[0][:600], digits[1][:600]
    few = FAST | {"clients": 3}
    arrays = fedpn.run(tmp_path / "arrays", dataset=(x, y), **few)
    pairs = fedpn.run(tmp_path / "pairs", dataset=Pairs(x, y), **few)
    named = fedpn.open_dataset("digits")
    dataset = fedpn.run(tmp_path / "set", dataset=named, **few, data__limit=600)
    assert arrays["accuracy"] == pairs["accuracy"]
    assert pairs.predictor(0).bundle.classes[3] == "three"
    assert dataset["dataset"] == "digits"


def test_a_frame_is_a_table(tmp_path):
    rng = np.random.default_rng(0)
    sick = rng.integers(0, 2, 400)
    columns = {"age": rng.normal(50 + 20 * sick), "pulse": rng.normal(70 - 5 * sick)}
    columns |= {"sick": np.where(sick, "yes", "no")}
    columns["site"] = np.array(["a", "b"])[np.arange(400) % 2]
    frame = Frame(columns)
    named = {"data__label": "sick", "data__client": "site"}
    run = fedpn.run(tmp_path / "run", dataset=frame, **named, **FAST)
    assert run.clients == ("a", "b") and run["accuracy"]["global"]["ind"] > 0.95
    answers = run.predictor("a")(Frame({"pulse": columns["pulse"], "age": columns["age"]}))
    assert len(answers) == 400
    with pytest.raises(fedpn.UserError, match="the frame has no column 'ill'"):
        fedpn.run(tmp_path / "other", dataset=frame, data__label="ill", **FAST)


def test_tables_and_pages_of_a_run(quick_run):
    run = fedpn.open(quick_run)
    rows = run.table()
    rows = rows if isinstance(rows, list) else rows.to_dict("records")
    assert {row["client"] for row in rows} == {"0", "1", "2", "3"}
    assert rows[0].keys() == {"client", "answers", "set", "accuracy"}
    assert len(run.history()) == run["rounds"] == 2
    shown = run._repr_html_()
    assert shown.count("<tr>") == len(run["accuracy"]) + 1
    assert html.escape("fedpn on digits: 4 clients") in shown
    assert run.report.exists() and "accuracy" in run and len(run) == len(run.metrics)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (7, "dataset is a int: give"),
        ((np.zeros((5, 2)), [0, 1, 0]), "y has 3 values beside 5 rows of x"),
        ((np.zeros((4, 2)), [0, 1, 0, 1], ["a"]), "client has 1 values beside 4 rows of x"),
        ((np.zeros(4), [0, 1, 0, 1]), "x has the shape"),
        ((np.array([[{}]] * 4), [0, 1, 0, 1]), "x has the type object"),
        ((np.zeros((4, 2)), [0.5, 1, 0, 1]), "a label is a whole number or a name"),
        ({"a": 1}, "whose items are no"),
        ([1, 2, 3, 4, 5], "whose items are no"),
    ],
)
def test_wrong_data_are_told_in_pythons_words(data, told, tmp_path):
    with pytest.raises(fedpn.UserError, match=told):
        fedpn.run(tmp_path / "run", dataset=data, **FAST)
    with pytest.raises(fedpn.UserError, match="out is a int"):
        fedpn.run(3)


QUICK = {"dataset": "digits", "rounds": 2, "clients": 3, "train__steps": 2, "fedpn__adapt_steps": 5}
SOURCE = """
import torch


class Tiny(torch.nn.Module):
    def __init__(self, shape, dim):
        super().__init__()
        self.dense = torch.nn.Linear(shape[1] * shape[2], dim)

    def forward(self, x):
        return self.dense(x.flatten(1))


def wrong(shape, dim):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[1] * shape[2], dim + 1))


def dropping(shape, dim):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.LazyLinear(dim))


def no_module(shape, dim):
    return 3


def failing(shape, dim):
    raise RuntimeError("out of coffee")
"""


def test_a_module_and_a_partition_of_ones_own(tmp_path, digits):
    run = fedpn.run(tmp_path / "run", model__encoder=Net, data__partition=halves, **QUICK)
    assert len(run.clients) == 2
    with pytest.raises(fedpn.UserError, match=r"names code of its own .*test_from_python:Net"):
        fedpn.run(tmp_path / "run", resume=True)  # by whomever it was written
    own = {"model__encoder": Net, "data__partition": halves}
    assert fedpn.run(tmp_path / "run", resume=True, **own).metrics == run.metrics
    assert fedpn.run(tmp_path / "run", resume=True, trust=True).metrics == run.metrics
    with pytest.raises(fedpn.UserError, match="has the norms that it has"):
        fedpn.run(tmp_path / "other", model__encoder=Net, model__norm="group", **QUICK)
    with pytest.raises(fedpn.UserError, match="names code of its own"):
        run.predictor(0)
    predictor = run.predictor(0, trust=True)
    assert predictor.bundle.shared["encoder.layers_of_mine.4.weight"].shape == (16, 256)
    assert len(predictor(digits[0][:7])) == 7
    assert (tmp_path / "run" / "code" / "test_from_python.py").exists()


def test_a_module_in_a_file_answers_elsewhere(tmp_path, digits, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny_net.py").write_text(SOURCE)
    words = ["--set", "model.encoder=tiny_net.py:Tiny", "--rounds", "2", "--clients", "3"]
    words += ["--set", "fedpn.adapt_steps=5", "--set", "train.steps=2", "--out", "run"]
    assert main(["run", "digits", *words]) == 0
    assert main(["export", "run", "--client", "0", "--out", "folder", "--trust"]) == 0
    (tmp_path / "tiny_net.py").unlink()
    np.savez(tmp_path / "inputs.npz", images=digits[0][:9])
    (tmp_path / "tiny_net.py").write_text("Tiny = None  # another one, here by chance")
    assert main(["predict", "folder", "inputs.npz"]) == 2
    assert "names code of its own (tiny_net.py:Tiny)" in capsys.readouterr().err
    assert main(["predict", "folder", "inputs.npz", "--trust", "--out", "answers.csv"]) == 0
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 10
    assert "code/tiny_net.py" in (tmp_path / "folder" / "manifest.json").read_text()
    (tmp_path / "folder" / "code" / "tiny_net.py").write_text("evil = 1")
    assert main(["predict", "folder", "inputs.npz", "--trust"]) == 2
    assert "tiny_net.py is damaged or was changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wrong", r"an embedding of \(2, 16\), not \(2, 17\)"),
        ("dropping", "has dropout"),
        ("no_module", "gives no torch.nn.Module"),
        ("failing", "fails: out of coffee"),
        ("missing", "cannot import the encoder"),
    ],
)
def test_modules_that_do_not_fit_are_told(name, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_nets.py").write_text(SOURCE)
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(fedpn.UserError, match=told):
        fedpn.run(tmp_path / "run", model__encoder=f"own_nets:{name}", **QUICK)
    with pytest.raises(fedpn.UserError, match="put it into a file"):
        fedpn.run(tmp_path / "run", model__encoder=lambda shape, dim: None, **QUICK)
    with pytest.raises(fedpn.UserError, match="each row to one client"):
        fedpn.run(tmp_path / "run", data__partition="test_from_python:twice", **QUICK)


def twice(labels, clients, seed):
    return [np.arange(5), np.arange(5)]


def test_what_is_made_in_a_function_is_kept_as_text(tmp_path, digits):
    """As in a notebook: a module, a router, an algorithm and a density that no file holds."""
    width = 12

    class Small(torch.nn.Module):
        def __init__(self, shape, dim):
            super().__init__()
            self.one = torch.nn.Linear(shape[1] * shape[2], width)
            self.two = torch.nn.Linear(width, dim)

        def forward(self, x):
            return self.two(helped(self.one(x.flatten(1))))

    def helped(x):
        return torch.relu(x)

    class Gentle(base.FedAvg):
        def objective(self, task, params, server, batch):
            value, buffers = task.loss(params, batch)
            return value / 2, buffers

    def doubt(opinion):
        return 1 - opinion.probs.amax(-1)

    @dataclass(frozen=True)
    class Slow(Gentle):
        lr: float = 0.005

    own = {"model__encoder": Small, "algorithm": Slow, "routing__router": doubt}
    quick = {"rounds": 2, "clients": 3, "train__steps": 2, "routing__rule": "quantiles"}
    run = fedpn.run(tmp_path / "run", **own, **quick)
    kept = {path.name for path in (tmp_path / "run" / "code").iterdir()}
    assert kept == {"own_Small.py", "own_Slow.py", "own_doubt.py"}
    text = (tmp_path / "run" / "code" / "own_Slow.py").read_text()
    assert text.index("class Gentle(base.FedAvg)") < text.index("class Slow(Gentle)")
    exec(compile(text, "own_Slow.py", "exec"), {"__name__": "own_Slow"})
    here = run.predictor(0, trust=True).predict_proba(digits[0][:5])
    code = "import numpy, fedpn, sys; digits = numpy.load(sys.argv[2])['x'];"
    code += "print(fedpn.load(sys.argv[1], 0, trust=True).predict_proba(digits).tolist())"
    np.savez(tmp_path / "x.npz", x=digits[0][:5])
    command = [sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "x.npz")]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(np.array(json.loads(elsewhere)), here, atol=1e-5)


def test_a_module_that_is_made_already(tmp_path, digits):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 16))
    before = made[1].weight.clone()
    quick = {"rounds": 2, "clients": 3, "train__steps": 2, "algorithm": "fedavg"}
    still = {"model__frozen": True, "method__weight_decay": 0.1}
    run = fedpn.run(tmp_path / "frozen", model__encoder=made, **still, **quick)
    predictor = run.predictor(0, trust=True)
    torch.testing.assert_close(predictor.bundle.shared["encoder.encoder.1.weight"], before)
    moved = fedpn.run(tmp_path / "moved", model__encoder=made, **quick).predictor(0, trust=True)
    assert not moved.bundle.shared["encoder.1.weight"].equal(before)
    assert made[1].weight.equal(before), "the caller's own module stays as it is"
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 16))
    with pytest.raises(fedpn.UserError, match=r"own_Sequential.txt: edited"):
        fedpn.run(tmp_path / "moved", resume=True, model__encoder=other, **quick)
    fedpn.run(tmp_path / "moved", resume=True, model__encoder=made, **quick)
    del sys.modules["own_Sequential"]  # as in another session
    with pytest.raises(fedpn.UserError, match="it was never in a file: give it again"):
        fedpn.load(tmp_path / "moved", 0, trust=True)
    again = fedpn.load(tmp_path / "moved", 0, trust=True, encoder=made)
    assert len(again(digits[0][:3])) == 3


def test_weights_of_ones_own_encoder(tmp_path):
    weights = {"layers_of_mine.4.weight": torch.full((16, 256), 0.01)}
    weights |= {n: t for n, t in Net((1, 28, 28), 16).state_dict().items() if n not in weights}
    save_file(weights, tmp_path / "w.safetensors")
    settings = {"model__pretrained": str(tmp_path / "w.safetensors"), "model__frozen": True}
    run = fedpn.run(tmp_path / "run", model__encoder=Net, **settings, **QUICK)
    shared = run.predictor(0, trust=True).bundle.shared
    assert shared["encoder.encoder.layers_of_mine.4.weight"].unique().tolist() == [
        pytest.approx(0.01)
    ]


class Ball(torch.nn.Module):
    """A density of one's own: a Gaussian a class."""

    def __init__(self, dim, classes, layers):
        super().__init__()
        self.middle = torch.nn.Parameter(torch.randn(classes, dim))

    def log_prob(self, z):
        def log(middle):
            return -(z.unsqueeze(-2) - middle).square().sum(-1) / 2

        return log(self.middle), log(self.middle.detach())

    def label_log_prob(self, z, labels):
        index = labels[:, None]
        return tuple(log.gather(1, index)[:, 0] for log in self.log_prob(z))


def test_a_density_of_ones_own(tmp_path, digits):
    run = fedpn.run(tmp_path / "run", model__density=Ball, **QUICK)
    predictor = run.predictor(0, trust=True)
    assert predictor.bundle.shared["density.middle"].shape == (10, 16)
    assert len(predictor(digits[0][:3])) == 3
    with pytest.raises(fedpn.UserError, match=r"model\.density: .*Pairs\(16, 10, 30\) fails"):
        fedpn.run(tmp_path / "other", model__density=Pairs, **QUICK)


def test_what_no_setting_takes(tmp_path):
    with pytest.raises(fedpn.UserError, match="model__encoder is a object, which no setting takes"):
        fedpn.run(tmp_path / "run", model__encoder=object())


def test_what_is_wrong_is_told_as_python_has_it(tmp_path):
    frame = Frame({"a": np.arange(20.0), "sick": np.arange(20) % 2})
    with pytest.raises(fedpn.UserError, match=r"name the label column with data__label=…"):
        fedpn.run(tmp_path / "run", dataset=frame)
    fedpn.run(tmp_path / "full", **FAST, clients=np.int64(3))
    with pytest.raises(fedpn.UserError, match="overwrite=True") as caught:
        fedpn.run(tmp_path / "full", **FAST, clients=3)
    assert "--" not in str(caught.value)


def test_nothing_asked_is_nothing_answered(quick_run, digits):
    predictor = fedpn.load(quick_run, client=0)
    assert predictor([]) == [] and predictor(digits[0][:0]) == []
    assert predictor.predict_proba([]).shape == (0, 10)
