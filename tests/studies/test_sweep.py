"""Sweeps: real ones on digits, stopped and gone on with, grown, and failing in part."""

import csv
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import fedpn
from fedpn.cli.commands import run as run_command
from fedpn.cli.main import _parser, main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import nest
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.federated.listener import Listener
from fedpn.runs.config import resolve, to_tree
from fedpn.runs.studies import tuned

BASE = ["--algorithm", "analytic", "--clients", "3", "--set", "head.fourier=0"]
FAST = {"algorithm": "analytic", "clients": 3, "head__fourier": 0}
OVER = ["--over", "head.filters=2,4"]
LONG = 120.0  # seconds until a test gives up


def _cells(out):
    return {path.name: path.read_bytes() for path in (out / "cells").glob("*.json")}


def _times(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of two values and two seeds."""
    out = tmp_path_factory.mktemp("sweeps") / "filters"
    assert main(["sweep", "digits", *BASE, *OVER, "--seeds", "2", "--out", str(out)]) == 0
    return out


def _again(swept, capsys):
    asked = ["sweep", "digits", *BASE, *OVER, "--seeds", "2", "--out", str(swept)]
    assert main(asked) == 0
    return capsys.readouterr()


def test_cells_are_what_a_run_on_tuning_rows_comes_to(swept, tmp_path):
    for name in _cells(swept):
        record = store.read_json(swept / "cells" / name)
        tree = nest(record["settings"])
        found = tuned.judge_on_tuning_rows(resolve([tree]), 0, tmp_path / name, Listener())
        for who, row in found["accuracy"].items():
            assert record["figures"]["accuracy"][who] == pytest.approx(row, abs=1e-3)


def test_all_that_is_there_is_kept(swept, capsys):
    before = _times(swept)
    told = _again(swept, capsys)
    assert "4 cells, 4 of which are there already" in told.err
    assert _times(swept) == before


def test_what_is_printed(swept, capsys):
    out = _again(swept, capsys).out
    best = tomllib.loads((swept / "best.toml").read_text())
    assert f"best: head.filters={best['head']['filters']}" in out
    assert "optimistic" in out and "on test rows that no cell has seen" in out
    head, line = out.strip().splitlines()[0], out.strip().splitlines()[2]
    assert head.split()[0] == "head.filters" and " ± " in line


def test_the_command_of_the_best_runs_just_that(swept, capsys):
    out = _again(swept, capsys).out
    command = next(line for line in out.splitlines() if line.startswith("  fedpn run"))
    typed = _parser().parse_args(shlex.split(command)[1:])
    best = tomllib.loads((swept / "best.toml").read_text())
    assert to_tree(run_command._config(typed)[0]) == best
    assert best["seed"] == 0


def test_the_table_has_numbers_as_numbers(swept):
    with (swept / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["head.filters", "seed", "answers", "headline", "figure", "value"]
    mixes = [r for r in rows if r["figure"] == "mix" and r["headline"] == "True"]
    assert {(r["head.filters"], r["seed"]) for r in mixes} == {
        (f, s) for f in ("2", "4") for s in ("0", "1")
    }
    assert all(0 <= float(r["value"]) <= 1 for r in mixes)
    assert {"ece", "auroc"} <= {r["figure"] for r in rows}


def test_the_best_has_the_highest_mean(swept):
    found = fedpn.sweep(swept, {"head__filters": [2, 4]}, 2, dataset="digits", **FAST)
    with (swept / "sweep.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["headline"] == "True" and r["figure"] == "mix"]
    means = {
        f: np.mean([float(r["value"]) for r in rows if r["head.filters"] == str(f)]) for f in (2, 4)
    }
    assert found.best == {"head.filters": max(means, key=means.get)}
    table = found.table()
    assert table["mix"].tolist() == pytest.approx(sorted(means.values(), reverse=True))
    assert table["mix_error"].notna().all() and table["seeds"].tolist() == [2, 2]
    assert "<svg" in found._repr_html_() and "optimistic" in found._repr_html_()


def test_a_sweep_grows_by_values_and_seeds(swept, capsys):
    before = _times(swept)
    asked = ["sweep", "digits", *BASE, "--over", "head.filters=2,4,6", "--seeds", "3"]
    assert main([*asked, "--out", str(swept)]) == 0
    after = _times(swept)
    assert len(after) == 9 and {name: after[name] for name in before} == before
    assert "9 cells, 4 of which are there already" in capsys.readouterr().err


def test_another_sweep_does_not_take_its_place(swept, tmp_path, capsys):
    asked = ["sweep", "digits", *BASE, *OVER, "--seeds", "1", "--out"]
    assert main([*asked, str(swept), "--set", "data.cards=2"]) == 2
    told = capsys.readouterr().err
    assert "has a sweep with data.cards=its default, and now it is 2" in told
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*asked, str(tmp_path)]) == 2
    assert "holds no sweep" in capsys.readouterr().err


def test_a_damaged_cell_is_run_again(swept):
    before = _cells(swept)
    broken, other, empty = list(before)[:3]
    (swept / "cells" / broken).write_text("{")
    (swept / "cells" / other).write_bytes(before[broken])
    (swept / "cells" / empty).write_text('{"format": 1, "figures": []}')
    over = {"head__filters": [2, 4, 6]}
    found = fedpn.sweep(swept, over, 3, dataset="digits", **FAST)
    assert not found.failures
    for name in (broken, other, empty):
        record = store.read_json(swept / "cells" / name)
        assert record["key"] == name.removesuffix(".json") and record["figures"]
    kept = (swept / "sweep.toml").read_text()
    (swept / "sweep.toml").write_text("over = 3")
    with pytest.raises(UserError, match="no plan of a sweep"):
        fedpn.sweep(swept, over, 3, dataset="digits", **FAST)
    (swept / "sweep.toml").write_text(kept)


def test_a_cell_that_fails_is_told_and_the_others_go_on(tmp_path, capsys):
    asked = ["sweep", "digits", *BASE, "--over", "clients=3,5000", "--seeds", "1"]
    assert main([*asked, "--out", str(tmp_path / "a")]) == 1
    told = capsys.readouterr()
    assert "clients=5000 seed=0 failed: 5000 clients cannot share the 1797 rows" in told.err
    assert "best: clients=3" in told.out
    assert "figures are of different rows" in told.out
    assert main(["sweep", *BASE, "--over", "clients=5000", "--out", str(tmp_path / "b")]) == 1


PLACE = {"PYTHONPATH": str(Path(fedpn.__file__).parents[1])}


def _start(out):
    """A sweep of cells that take a while, in a process of its own."""
    asked = ["sweep", "digits", "--algorithm", "fedavg", "--clients", "3", "--rounds", "8"]
    asked += ["--over", "method.lr=0.01,0.02", "--seeds", "2", "--out", str(out)]
    asked += ["--set", "engine.threads=1"]
    code = f"import sys; from fedpn.cli.main import main; sys.exit(main({asked!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=os.environ | PLACE
    )


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_stopped_goes_on_where_it_was(kill, tmp_path):
    process = _start(tmp_path / "a")
    deadline = time.monotonic() + LONG
    while not _cells(tmp_path / "a") and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, kill)
    _, told = process.communicate(timeout=LONG)
    before = _times(tmp_path / "a")
    assert before and len(before) < 4
    if kill == signal.SIGINT:
        assert process.returncode == 130 and "go on with the same command" in told
    again = _start(tmp_path / "a")
    assert "of which are there already" in again.communicate(timeout=LONG)[1]
    assert again.returncode == 0
    after = _times(tmp_path / "a")
    assert len(after) == 4 and {name: after[name] for name in before} == before
    settings = {"algorithm": "fedavg", "clients": 3, "rounds": 8, "seed": 1}
    config = resolve([settings, {"dataset": "digits", "method": {"lr": 0.02}}])
    whole = tuned.judge_on_tuning_rows(config, 0, tmp_path / "whole", Listener())
    records = [store.read_json(path) for path in (tmp_path / "a" / "cells").glob("*.json")]
    same = [r for r in records if r["settings"]["fedavg.lr"] == 0.02 and r["seed"] == 1]
    assert [r["figures"]["accuracy"] for r in same] == [whole["accuracy"]]


def test_settings_of_an_algorithm_are_tried_with_that_alone(tmp_path):
    over = {"algorithm": ["analytic", "fedavg"], "fedavg__lr": [0.01, 0.1]}
    settings = {"clients": 3, "rounds": 1, "head__filters": 2}
    found = fedpn.sweep(tmp_path / "a", over, 1, dataset="digits", **settings)
    choices = [setting.choice for setting in found.settings]
    assert len(choices) == 3 and {"algorithm": "analytic"} in choices
    assert {"algorithm": "fedavg", "fedavg.lr": 0.1} in choices
    assert found.table()["fedavg.lr"].isna().sum() == 1


def test_data_in_memory_are_swept_in_this_process(tmp_path):
    digits = load_dataset("digits")
    data = (digits.x[:, 0], digits.y)
    told = []
    found = fedpn.sweep(
        tmp_path / "a",
        {"head__filters": [2, 4]},
        seeds=1,
        tell=lambda *heard: told.append(heard),
        dataset=data,
        **FAST,
    )
    assert [words for _, _, words in told if words] == ["done", "done"]
    assert found.command.startswith("fedpn.run(out, dataset=data, algorithm='analytic'")
    other = (digits.x[:, 0], (digits.y + 1) % 10)
    fedpn.sweep(tmp_path / "a", {"head__filters": [2, 4]}, seeds=1, dataset=other, **FAST)
    assert len(_cells(tmp_path / "a")) == 4  # figures of other data are other cells


SCRIPT = """
from dataclasses import dataclass
import fedpn
print("begun")

@dataclass(frozen=True)
class Mine(fedpn.FedAvg):
    pull: float = 0.0

    def objective(self, task, params, server, batch):
        return super().objective(task, params, server, batch)

settings = {"dataset": "digits", "clients": 3, "rounds": 1}
one = fedpn.sweep("own", {"mine__pull": [0.0, 1.0]}, seeds=1, algorithm=Mine, **settings)
two = fedpn.sweep("lr", {"method__lr": [0.01, 0.1]}, seeds=1, algorithm="fedavg", **settings)
print(len(one.settings), len(two.settings))
"""


def test_a_script_is_not_run_again_by_its_workers(tmp_path):
    """Scripts of researchers have no `if __name__ == "__main__"`."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | PLACE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.split("\n")[:2] == ["begun", "2 2"], ended.stderr


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--over", "seed=1,2"], "--seeds N"),
        (["--over", "dataset=digits,mnist"], "sweep each on its own"),
        (["--over", "engine.threads=1,2"], "do not depend on the engine"),
        (["--over", "head.filters"], "not of the form key=value,value"),
        (["--over", "head.filters=1,"], "not of the form key=value,value"),
        (["--over", "head.filterz=1"], "unknown setting"),
        (["--over", "head.filters=few"], "must be a whole number"),
        (["--over", "head.filters=1", "--over", "head.filters=2"], "given twice"),
        (["--over", "ditto.lr=1,2"], "--over ditto.lr changes nothing"),
        (["--over", "head.filters=1,2", "--set", "ditto.lr=1"], "--set ditto.lr=1 changes"),
        (["--over", "head.filters=1,2", "--seeds", "0"], "--seeds is 0"),
        (["--over", "head.filters=1,2", "--jobs", "0"], "--jobs is 0"),
        (["--over", "head.filters=1,2", "--seeds", "9999"], "are the most"),
        (["--over", "head.filters=1,2", "--dataset", "no/such.csv"], "no/such.csv"),
        ([], "--over"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(asked, words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", *BASE, *asked, "--out", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_mistakes_from_python(tmp_path):
    for over in ({}, {"rounds": []}, {"rounds": 3}, {"algorithm": "fedpn"}):
        with pytest.raises(UserError, match="over"):
            fedpn.sweep(tmp_path / "a", over, dataset="digits")
    with pytest.raises(UserError, match="jobs is 0"):
        fedpn.sweep(tmp_path / "a", {"rounds": [1]}, jobs=0)


def test_a_config_file_is_the_base(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("base.toml").write_text(
        'algorithm = "analytic"\nclients = 3\n[head]\nfourier = 0\nfilters = 3\n'
    )
    asked = ["sweep", "base.toml", "--over", "head.filters=2,4", "--seeds", "1", "--jobs", "1"]
    assert main(asked) == 0
    assert "fedpn run base.toml --set head.filters=" in capsys.readouterr().out
    assert Path("sweeps/digits-analytic-filters/sweep.png").exists()
