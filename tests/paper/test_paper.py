"""The paper's tables: cells that are run once, figures as printed, a ledger that tells what is."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.federated.listener import Listener
from fedpn_paper.cells import VARIANTS, Cell, ensure
from fedpn_paper.grid import COLUMNS, PAPER_SETS, ROUTED, Wish, cells
from fedpn_paper.record import recorded, settle

TINY = {
    "clients": 4,
    "rounds": 2,
    "train": {"steps": 2, "batch": 16},
    "fedpn": {"adapt_steps": 4, "adapt_epochs": 0},
}


def tiny(algorithm="fedpn", variant="", **more):
    return Cell("digits", algorithm, variant, changes=TINY, **more)


# Cells


def test_a_cell_is_run_once_and_kept(tmp_path):
    first = settle(tiny("fedavg"), tmp_path)
    before = (tmp_path / "runs/digits-fedavg-s0/metrics.json").stat().st_mtime_ns
    assert settle(tiny("fedavg"), tmp_path) == first
    assert ensure(tiny("fedavg"), tmp_path).name == "digits-fedavg-s0"
    assert (tmp_path / "runs/digits-fedavg-s0/metrics.json").stat().st_mtime_ns == before
    assert first["settings"]["train.steps"] == 2
    assert "per_client" not in first
    assert len(json.dumps(first)) < 3000


def test_a_record_alone_counts_as_done_unless_settings_differ(tmp_path):
    kept = settle(tiny("fedavg"), tmp_path)
    other = Cell("digits", "fedavg", changes=TINY | {"train": {"steps": 3, "batch": 16}})
    (tmp_path / "runs/digits-fedavg-s0").rename(tmp_path / "elsewhere")
    assert settle(tiny("fedavg"), tmp_path) == kept
    assert not (tmp_path / "runs/digits-fedavg-s0").exists()
    with pytest.raises(UserError, match=r"train\.steps was 2 and is now 3"):
        recorded(other, tmp_path)
    with pytest.raises(UserError, match="has 2 rounds, not 1"):
        recorded(tiny("fedavg", rounds=1), tmp_path)
    assert recorded(tiny("fedavg", rounds=3), tmp_path) is None, "more rounds go on"


def test_a_run_with_other_settings_is_refused_and_more_rounds_go_on(tmp_path):
    ensure(tiny("fedavg"), tmp_path)
    changed = Cell("digits", "fedavg", changes=TINY | {"method": {"lr": 0.5}})
    with pytest.raises(UserError, match=r"fedavg\.lr was"):
        ensure(changed, tmp_path)
    path = ensure(tiny("fedavg", rounds=3), tmp_path)
    assert json.loads((path / "metrics.json").read_text())["rounds"] == 3
    assert len((path / "history.jsonl").read_text().splitlines()) == 3


def test_a_router_goes_on_from_the_trained_cell(tmp_path):
    plain, told = settle(tiny(), tmp_path), []
    listener = Listener()
    listener.progress = lambda stage, done, of, **facts: told.append(stage)
    routed = settle(tiny(variant="gaussian"), tmp_path, listener)
    assert "personalise" in told
    assert "federate" not in told, "no round is played again"
    assert routed["accuracy"]["global"] == plain["accuracy"]["global"]
    assert routed["accuracy"]["local"] == plain["accuracy"]["local"]
    assert routed["routing"]["score"] == "gaussian"
    before, after = (
        store.read_tensors(tmp_path / "runs" / name / "state.safetensors")[0]
        for name in ("digits-fedpn-s0", "digits-fedpn-gaussian-s0")
    )
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_every_variant_and_every_cell_has_sound_settings(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpn_paper.grid.at_hand", lambda name: True)
    listed = cells(Wish(), tmp_path)
    assert len({cell.name for cell in listed}) == len(listed)
    assert {cell.variant for cell in listed} <= set(VARIANTS)
    for cell in listed:
        config = cell.config()
        assert config.clients == 20
        assert (config.model.norm == "batch") == (
            cell.algorithm == "fedbn" or cell.variant == "norm"
        )
    order = [cell.algorithm for cell in listed[: len(PAPER_SETS)]]
    assert set(order) == {"fedpn"}, "the most telling cells come first"


def test_one_budget_for_every_algorithm():
    for dataset in PAPER_SETS:
        configs = [Cell(dataset, algorithm).config() for algorithm in (*COLUMNS, "local")]
        for key in ("optimizer", "lr", "optimizer_state"):
            assert len({getattr(config.method, key) for config in configs}) == 1
        assert len({(c.rounds, c.clients, c.train.steps, c.train.batch) for c in configs}) == 1


# The whole


def _options(out: Path) -> list[str]:
    options = ["--quick", "--datasets", "digits", "--algorithms", "fedavg", "--rounds", "6"]
    return ["paper", *options, "--only", "benchmark", "--out", str(out)]


def _command(out: Path) -> list[str]:
    return [sys.executable, "-m", "fedpn.cli.main", *_options(out), "--jobs", "1"]


def _until(process, out: Path, pattern: str) -> None:
    """Waits until the process has written such a file."""
    while process.poll() is None and not list(out.glob(pattern)):
        time.sleep(0.01)


@pytest.mark.slow
def test_stopped_killed_and_restarted_it_keeps_finished_cells(tmp_path):
    out = tmp_path / "results"
    process = subprocess.Popen(_command(out))
    _until(process, out, "runs/*/history.jsonl")
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert not list(out.glob("cells/*.json"))
    assert list(out.glob("runs/*/state.safetensors")), "it saved where it was"
    process = subprocess.Popen(_command(out), start_new_session=True)
    _until(process, out, "cells/*.json")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    first = {p.name: p.stat().st_mtime_ns for p in out.glob("cells/*.json")}
    assert first
    assert main(_options(out)) == 0
    after = {p.name: p.stat().st_mtime_ns for p in out.glob("cells/*.json")}
    assert len(after) == 3
    assert first.items() <= after.items()


@pytest.mark.slow
def test_a_quick_paper(tmp_path, capfd, monkeypatch):
    """Small, but all of it: cells, routers, a figure, the ledger; a refused cell is told."""
    monkeypatch.setattr("fedpn_paper.grid.QUICK", TINY)
    out = tmp_path / "results"
    options = ["--quick", "--datasets", "digits", "--out", str(out)]
    ensure(Cell("digits", "local", rounds=1, changes=TINY | {"clients": 5}), out)
    assert main(["paper", *options, "--only", "benchmark,landscape"]) == 1
    assert "digits-local-s0: --resume: clients was 5" in capfd.readouterr().err
    names = {p.stem for p in (out / "cells").glob("*.json")}
    assert {f"digits-{a}-s0" for a in COLUMNS} | {f"digits-{a}-gaussian-s0" for a in ROUTED} < names
    page = (out / "ledger.html").read_text()
    assert '<figure id="landscape" ' in page
    assert "digits-local-s0" in page, "what failed is on the page"
    assert main(["paper", *options, "--only", "ledger", "--pages", str(tmp_path / "docs")]) == 0
    assert "digits" in (tmp_path / "docs/ledger.md").read_text()


def test_what_is_kept_is_not_overwritten(tmp_path, capsys):
    out = tmp_path / "results"
    options = ["paper", "--only", "landscape", "--out", str(out)]
    assert main(options) == 0
    kept = out / "experiments/landscape/result.json"
    before = kept.stat().st_mtime_ns
    assert main([*options, "--quick"]) == 2
    assert "quick was False and is now True" in capsys.readouterr().err
    assert main(options) == 0
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "benchmarks"], "--only 'benchmarks'"),
        (["--datasets", "mnits"], "--datasets 'mnits'"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--datasets", "organcmnist"], "at hand"),
        (["--datasets", ","], "--datasets names nothing"),
        (["--only", ""], "--only names nothing"),
        (["--only", "ledger", "--pages", "/dev/null/x"], "--pages /dev/null/x cannot be made"),
    ],
)
def test_mistakes_are_told(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDPN_DATA", str(tmp_path))
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path))
    assert main(["paper", "--out", str(tmp_path / "out"), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_cell_with_another_seed_has_another_place():
    assert replace(tiny(), seed=4).name == "digits-fedpn-s4"
