"""Clients that come later and clients that leave: as if they had always, or never, been there."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedpn
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.core.trees import unflatten
from fedpn.data.sources import datasets
from fedpn.federated.heads import make_head
from fedpn.federated.heads.sums import pack, solve, unpack
from fedpn.federated.listener import Stopped
from fedpn.federated.site import Site
from fedpn.runs import pipeline
from fedpn.runs.config import resolve
from fedpn.runs.membership import forget, join
from fedpn.runs.prepare import prepare

SMALL = {
    "dataset": "digits",
    "algorithm": "analytic",
    "clients": 5,
    "head": {"filters": 10, "fourier": 20},
    "routing": {"abstain": 0.2, "outliers": 0.2},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "all"
    pipeline.run(resolve([SMALL]), out)
    return out


def server_of(run):
    return unflatten(load_file(run / "server.safetensors"))


def sums_of(config, server, clients):
    """What some clients' rows come to, under the features of a run."""
    setup = prepare(config)
    observe = setup.observer(config.method, server)
    phase = make_head(config.head).change(leaves=False)
    parts = [phase.client(Site(c, setup, 0, observe), server, {}).statistics for c in clients]
    return {name: sum(part["sums"][name] for part in parts) for name in ("gram", "cross")}


def test_who_has_left_was_never_there(done, tmp_path):
    forget(done, "3", tmp_path / "left")
    before, after = server_of(done), server_of(tmp_path / "left")
    config = resolve([SMALL])
    others = sums_of(config, before, [0, 1, 2, 4])
    for name, tensor in others.items():
        torch.testing.assert_close(after["sums"][name], tensor, rtol=1e-9, atol=1e-9)
    ridge = float(before["head"]["ridge"])
    expected = solve(unpack(others["gram"]), others["cross"], ridge).float()
    torch.testing.assert_close(after["head"]["matrix"], expected, rtol=1e-6, atol=1e-7)
    labels = prepare(resolve([SMALL, {"data": {"without": ["3"]}}])).federation
    counts = np.bincount(labels.labels[np.concatenate(labels.train)], minlength=10)
    np.testing.assert_array_equal(after["head"]["counts"], counts)
    assert (after["head"]["matrix"] != before["head"]["matrix"]).any()


def test_wholly_is_as_if_never_met(done, tmp_path):
    forget(done, "3", tmp_path / "left", wholly=True)
    pipeline.run(resolve([SMALL, {"data": {"without": ["3"]}}]), tmp_path / "never")
    assert (tmp_path / "left/server.safetensors").read_bytes() == (
        tmp_path / "never/server.safetensors"
    ).read_bytes()


def test_the_others_answer_under_the_new_head(done, tmp_path):
    found = forget(done, "3", tmp_path / "left")
    assert found["clients"] == 4 and len(found["per_client"]) == 4
    images = datasets.load("digits").x[:20]
    answers = fedpn.load(tmp_path / "left", client="4")(images)
    assert len(answers) == 20
    with pytest.raises(UserError, match="3"):
        fedpn.load(tmp_path / "left", client="3")
    again = forget(tmp_path / "left", "0", tmp_path / "fewer")
    assert again["clients"] == 3


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """Rows of the classes 0 and 1, which look like the others'."""
    digits = datasets.load("digits")
    rows = np.flatnonzero(digits.y < 2)[:120]
    path = tmp_path_factory.mktemp("data") / "oslo.npz"
    np.savez(path, images=digits.x[rows, 0], labels=digits.y[rows])
    return path


def test_who_comes_later_joins_without_training(done, newcomer, tmp_path):
    found = join(done, str(newcomer), "Oslo", tmp_path / "oslo")
    assert found["clients"] == 1 and found["accuracy"]["bayes"]["ind"] > 0.9
    predictor = fedpn.load(tmp_path / "oslo")
    assert predictor.bundle.client == "Oslo" and len(predictor.bundle.classes) == 10
    assert (predictor.bundle.rule.own > 0).nonzero().ravel().tolist() == [0, 1]
    before, after = server_of(done), server_of(tmp_path / "oslo")
    assert float(after["head"]["counts"].sum()) == float(before["head"]["counts"].sum()) + 60
    assert (after["head"]["matrix"] != before["head"]["matrix"]).any()


def test_coming_and_going_leaves_no_trace(done, newcomer, tmp_path):
    """A client's sums added and taken away give the sums before, to rounding."""
    join(done, str(newcomer), "Oslo", tmp_path / "oslo")
    before, after = server_of(done), server_of(tmp_path / "oslo")
    config = resolve([SMALL, {"dataset": str(newcomer)}])
    from fedpn.federated.gather import Total

    added = {n: after["sums"][n] - before["sums"][n] for n in before["sums"]}
    change = make_head(config.head).change(leaves=True)
    counts = after["head"]["counts"] - before["head"]["counts"]
    total = Total({"sums": added, "classes": {"counts": counts}}, 1.0)
    back = change.server(after, total)
    for name, tensor in before["sums"].items():
        torch.testing.assert_close(back["sums"][name], tensor, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(back["head"]["matrix"], before["head"]["matrix"])
    torch.testing.assert_close(pack(unpack(added["gram"])), added["gram"])


def test_trained_models_take_newcomers_in_as_well(newcomer, tmp_path):
    quick = {"rounds": 1, "algorithm": "fedpn", "method": {"adapt_epochs": 1, "adapt_steps": 0}}
    pipeline.run(resolve([SMALL | quick]), tmp_path / "run")
    join(tmp_path / "run", str(newcomer), "Oslo", tmp_path / "oslo")
    assert fedpn.load(tmp_path / "oslo").bundle.own  # a model of its own
    with pytest.raises(UserError, match="trained, which cannot forget"):
        forget(tmp_path / "run", "1", tmp_path / "left")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda run, rows, out: join(run, str(rows), "1", out), "has a client 1 already"),
        (lambda run, rows, out: forget(run, "Rome", out), "has no client Rome"),
        (lambda run, rows, out: forget(rows.parent, "1", out), "no finished run"),
        (lambda run, rows, out: join(run, "nowhere.csv", "Oslo", out), "nowhere.csv"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(act, words, done, newcomer, tmp_path):
    with pytest.raises(UserError, match=words):
        act(done, newcomer, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_rows_than_those_of_the_run_are_not_taken_away(tmp_path):
    digits = datasets.load("digits")
    path = tmp_path / "mine.npz"
    np.savez(path, images=digits.x[:600, 0], labels=digits.y[:600])
    pipeline.run(resolve([SMALL | {"dataset": str(path), "clients": 3}]), tmp_path / "run")
    changed = digits.x[:600, 0].copy()
    changed[5] = 255 - changed[5]
    np.savez(path, images=changed, labels=digits.y[:600])
    with pytest.raises(UserError, match="other rows than"):
        forget(tmp_path / "run", "1", tmp_path / "left")
    assert not (tmp_path / "left").exists()


def test_clients_can_be_left_out_from_the_beginning():
    setup = prepare(resolve([SMALL, {"data": {"without": ["0", "3"]}}]))
    whole = prepare(resolve([SMALL]))
    assert setup.dataset.clients == ("1", "2", "4")
    for use in ("train", "calibration", "test"):
        left, all_of = getattr(setup.federation, use), getattr(whole.federation, use)
        for mine, theirs in zip(left, (all_of[1], all_of[2], all_of[4]), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for names, words in ((["7"], "no client is called"), (list("01234"), "nobody is left")):
        with pytest.raises(UserError, match=words):
            prepare(resolve([SMALL, {"data": {"without": names}}]))


@pytest.mark.parametrize("command", ["join", "update", "forget", "wholly"])
@pytest.mark.parametrize("cut", [KeyboardInterrupt, Stopped("early"), OSError(28, "full")])
def test_what_is_cut_short_leaves_nothing(command, cut, tmp_path, monkeypatch, capsys):
    """A directory that was left half made went on, by --resume, with the newcomer's rows alone."""
    digits = datasets.load("digits")
    np.savez(tmp_path / "all.npz", images=digits.x[:900, 0], labels=digits.y[:900])
    np.savez(tmp_path / "new.npz", images=digits.x[900:1000, 0], labels=digits.y[900:1000])
    run, out = tmp_path / "run", tmp_path / "out"
    pipeline.run(resolve([SMALL | {"dataset": str(tmp_path / "all.npz")}]), run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    data = [] if command in ("forget", "wholly") else [str(tmp_path / "new.npz")]
    verb = "forget" if command == "wholly" else command
    asked = [verb, str(run), *data, "--client", "Oslo" if verb == "join" else "1"]
    asked += ["--out", str(out), *(["--wholly"] if command == "wholly" else [])]

    def fail(*given):
        raise cut

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "write_models", fail)
        assert main(asked) == (1 if isinstance(cut, OSError) else 130)
    told = capsys.readouterr().err
    assert isinstance(cut, OSError) or (f"{run} is as it was" in told and "begins anew" in told)
    assert {path.name for path in tmp_path.iterdir()} == {"all.npz", "new.npz", "run"}
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert main(["run", "--resume", "--out", str(out)]) == 2
    assert main(asked) == 0 and fedpn.open(out)["clients"] in (1, 4)


KILL = """
import os, signal, sys
from fedpn.cli.main import main
from fedpn.runs import pipeline
pipeline.write_models = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_what_is_killed_is_cleared_away_by_the_next(done, newcomer, tmp_path):
    asked = ["join", str(done), str(newcomer), "--client", "Oslo", "--out", str(tmp_path / "oslo")]
    killed = subprocess.run([sys.executable, "-c", KILL, *asked], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".oslo.")
    assert main(asked) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["oslo"]


def test_a_link_to_an_empty_folder_is_filled(done, newcomer, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "oslo").symlink_to(tmp_path / "disk")
    join(done, str(newcomer), "Oslo", tmp_path / "oslo")
    assert (tmp_path / "oslo").is_symlink() and (tmp_path / "disk/bundle.json").exists()
    with pytest.raises(UserError, match="is not empty"):
        join(done, str(newcomer), "Bergen", tmp_path / "oslo")


def test_who_joins_meets_the_code_that_was_kept(newcomer, tmp_path, monkeypatch):
    """Not that which lies about under its name by now."""
    monkeypatch.chdir(tmp_path)
    means = Path(__file__).parents[1] / "extensions" / "class_means.py"
    (tmp_path / "means.py").write_text(means.read_text())
    own = SMALL | {"head": {"kind": "means.py:Means"}, "algorithm": "fedavg", "rounds": 1}
    pipeline.run(resolve([own]), tmp_path / "run")
    (tmp_path / "means.py").write_text("raise RuntimeError('another')\n")
    sys.modules.pop("means")
    with pytest.raises(UserError, match="add --trust"):
        join(tmp_path / "run", str(newcomer), "Oslo", tmp_path / "oslo")
    join(tmp_path / "run", str(newcomer), "Oslo", tmp_path / "oslo", trust=True)
    assert (tmp_path / "oslo/code/means.py").read_text() == means.read_text()
    sys.modules.pop("means")
