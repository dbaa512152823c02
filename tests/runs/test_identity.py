"""A run goes on as the run that it is: its settings, its data, its code, and no other's state."""

import json
import shutil
import sys

import numpy as np
import pytest

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.federated.checkpoint import BEFORE, STATE
from fedpn.federated.listener import Listener, Stopped
from fedpn.runs.directory import stored
from own_method import METHOD, PACE, forgotten

SMALL = {"dataset": "digits", "algorithm": "fedavg", "clients": 3, "rounds": 2, "train__steps": 1}


def resume(out, *more):
    return main(["run", "--resume", "--out", str(out), "--rounds", "3", *more])


def files(out):
    return {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run, and another of another rate and seed on the same data."""
    home = tmp_path_factory.mktemp("two")
    fedpn.run(home / "run", **SMALL, fedavg__lr=0.02)
    fedpn.run(home / "other", **SMALL, fedavg__lr=0.06, seed=1)
    return home


@pytest.fixture
def run(two, tmp_path):
    return shutil.copytree(two / "run", tmp_path / "run")


class Once(Listener):
    def stopping(self):
        return True


def test_the_state_of_another_run_is_refused(two, run, capsys):
    shutil.copy(two / "other" / STATE, run / STATE)
    before = files(run)
    assert resume(run) == 2
    told = capsys.readouterr().err
    assert f"{run / STATE} is of another run" in told
    assert "fedavg.lr was 0.06 and is now 0.02" in told and "seed was 1 and is now 0" in told
    assert files(run) == before


def test_neither_is_that_of_the_checkpoint_before(two, run, capsys):
    (run / STATE).unlink()
    shutil.copy(two / "other" / STATE, run / BEFORE)
    assert resume(run) == 2
    assert f"{run / BEFORE} is of another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lr = 0.02", "lr = 0.06", "fedavg.lr was 0.02 and is now 0.06"),
        ("clients = 3", "clients = 5", "clients was 3 and is now 5"),
        ("seed = 0", "seed = 4", "seed was 0 and is now 4"),
    ],
)
def test_an_edited_config_is_refused(old, new, words, run, capsys):
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new, 1))
    before = files(run)
    assert resume(run) == 2
    assert words in capsys.readouterr().err
    assert files(run) == before


def test_a_whole_directory_of_another_does_not_help(two, run, capsys):
    """Config and checkpoint of the other under this run's identity, and the other way round."""
    for name in ("config.toml", STATE, "history.jsonl"):
        shutil.copy(two / "other" / name, run / name)
    assert resume(run) == 2
    assert "was begun otherwise" in capsys.readouterr().err
    shutil.copy(two / "other" / store.IDENTITY, run / store.IDENTITY)
    assert resume(run) == 2
    assert "its checksum is not the run's" in capsys.readouterr().err  # of the manifest
    (run / store.IDENTITY).unlink()
    assert resume(run) == 2
    assert "is missing" in capsys.readouterr().err


def test_an_unfinished_run_knows_itself_too(two, tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        fedpn.run(out, **SMALL, fedavg__lr=0.02, listener=Once())
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace("lr = 0.02", "lr = 0.06"))
    assert resume(out) == 2
    assert "fedavg.lr was 0.02 and is now 0.06" in capsys.readouterr().err
    (out / "config.toml").write_text(text)
    assert main(["run", "--resume", "--out", str(out)]) == 0
    model = "shared.safetensors"
    assert (out / model).read_bytes() == (two / "run" / model).read_bytes()


def test_a_link_to_a_run_is_that_run(two, run, tmp_path, capsys):
    link = tmp_path / "link"
    link.symlink_to(run)
    shutil.copy(two / "other" / STATE, run / STATE)
    assert resume(link) == 2
    assert "is of another run" in capsys.readouterr().err
    shutil.copy(two / "run" / STATE, run / STATE)
    assert resume(link) == 0


def test_rows_that_were_edited_are_refused(tmp_path, capsys):
    digits = load_dataset("digits")
    path, out = tmp_path / "mine.npz", tmp_path / "run"
    labels = digits.y.copy()
    np.savez(path, images=digits.x[:, 0], labels=labels)
    fedpn.run(out, **(SMALL | {"dataset": path}))
    labels[:2] = labels[1::-1]
    np.savez(path, images=digits.x[:, 0], labels=labels)
    assert resume(out) == 2
    assert "not those with which the run began" in capsys.readouterr().err


def test_other_weights_to_begin_with_are_refused(tmp_path, capsys):
    weights, out = tmp_path / "w.safetensors", tmp_path / "run"
    fedpn.run(tmp_path / "before", **SMALL)
    shared = store.read_tensors(tmp_path / "before/shared.safetensors", "encoder.")[0]
    store.write_tensors(weights, shared)
    fedpn.run(out, **SMALL, model__pretrained=str(weights))
    store.write_tensors(weights, {name: 2 * tensor for name, tensor in shared.items()})
    assert resume(out) == 2
    assert "w.safetensors: edited since the run began" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mine.py", "pace.py"])
def test_edited_code_is_refused(name, mine, capsys):
    """That of the method, and of a module beside it."""
    with pytest.raises(Stopped):
        fedpn.run("run", **(SMALL | {"algorithm": "mine.py:Mine"}), listener=Once())
    kept = {path.name: path.read_text() for path in (mine / "run/code").glob("*.py")}
    assert kept == {"mine.py": METHOD, "pace.py": PACE}, "kept from the beginning"
    text = (mine / name).read_text()
    (mine / name).write_text(f"{text}\nEDITED = True\n")
    forgotten()
    assert resume("run", "--algorithm", "mine.py:Mine") == 2
    told = capsys.readouterr().err
    assert f"{name}: edited since the run began" in told and "code" in told
    (mine / name).write_text(text)
    forgotten()
    assert resume("run", "--trust") == 0


def test_code_that_is_edited_while_it_is_loaded_is_not_taken_for_the_new(mine):
    """In a notebook a module stays what it was when it was imported."""
    settings = SMALL | {"algorithm": "mine.py:Mine"}
    fedpn.run("one", **settings)
    (mine / "pace.py").write_text(PACE.replace("/ 2", "/ 200"))
    with pytest.raises(fedpn.UserError, match=r"pace.py was edited after it was loaded"):
        fedpn.run("two", **settings)
    assert not (mine / "two" / "config.toml").exists()
    forgotten()
    fedpn.run("two", **settings)
    models = [(mine / name / "shared.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] != models[1]


def test_a_run_answers_by_the_helper_that_was_kept_with_it(mine):
    """Even where two runs have helpers of one name, and the files are gone."""
    router = "from share import level\n\n\ndef doubt(opinion):\n    return level(opinion)\n"
    (mine / "doubt.py").write_text(router)
    settings = SMALL | {"routing__router": "doubt.py:doubt", "routing__rule": "quantiles"}
    levels = {"one": "1 - opinion.probs.amax(-1)", "two": "opinion.probs.amax(-1)"}
    for name, level in levels.items():
        (mine / "share.py").write_text(f"def level(opinion):\n    return {level}\n")
        for module in ("doubt", "share"):
            sys.modules.pop(module, None)
        fedpn.run(name, **(settings | {"algorithm": "ditto"}))
    for module in ("doubt", "share"):
        (mine / f"{module}.py").unlink()
        del sys.modules[module]
    images = load_dataset("digits").x[:20]
    scores = [fedpn.load(run, 0, trust=True)(images) for run in ("one", "two", "one")]
    reasons = [[answer.reason for answer in answers] for answers in scores]
    assert reasons[0] == reasons[2] != reasons[1]


def test_what_join_made_is_not_trained_anew(tmp_path, capsys):
    """It is a client's run of a federation; under --resume it became one of the newcomer's rows."""
    fedpn.run(tmp_path / "run", dataset="digits", algorithm="analytic", clients=3, head__filters=4)
    digits = load_dataset("digits")
    np.savez(tmp_path / "oslo.npz", images=digits.x[:120, 0], labels=digits.y[:120])
    asked = ["join", str(tmp_path / "run"), str(tmp_path / "oslo.npz"), "--client", "Oslo"]
    out = tmp_path / "oslo"
    assert main([*asked, "--out", str(out)]) == 0
    before = files(out)
    capsys.readouterr()
    assert main(["run", "--resume", "--out", str(out)]) == 2
    assert "a run of fedpn join, not of the simulator" in capsys.readouterr().err
    assert files(out) == before


def test_the_identity_is_a_hash_of_all_that_counts(two):
    one, other = (json.loads((two / n / store.IDENTITY).read_text()) for n in ("run", "other"))
    assert len(one["identity"]) == 64 and one["identity"] != other["identity"]
    assert one["data"] == other["data"] and one["settings"]["seed"] == 0
    assert not {"rounds", "engine.cohort"} & one["settings"].keys()
    assert store.read_tensors(two / "run" / STATE)[1]["identity"] == one["identity"]
    assert stored(two / "run")["fedavg"]["lr"] == one["settings"]["fedavg.lr"]
