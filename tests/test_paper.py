"""The paper's tables: cells that are run once, figures as printed, a ledger that tells what is."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpn import store
from fedpn.cli import main
from fedpn.config import resolve
from fedpn.data.federation import tuning
from fedpn.errors import UserError
from fedpn.experiments import claims, crew, ledger, ledger_html, ledger_markdown, tune, verdict
from fedpn.experiments.cells import VARIANTS, Cell, ensure
from fedpn.experiments.grid import COLUMNS, PAPER_SETS, ROUTED, Wish, cells
from fedpn.experiments.published import benchmark, in_distribution, published, slips
from fedpn.experiments.record import read_records, recorded, settle
from fedpn.experiments.tables import tried
from fedpn.experiments.tally import Tally
from fedpn.prepare import deal
from fedpn.rounds import Company

RESULTS = Path(__file__).parents[1] / "results"
TINY = {
    "clients": 4,
    "rounds": 2,
    "train": {"steps": 2, "batch": 16},
    "fedpn": {"adapt_steps": 4, "adapt_epochs": 0},
}


def tiny(algorithm="fedpn", variant="", **more):
    return Cell("digits", algorithm, variant, changes=TINY, **more)


def record(dataset, algorithm, mix, variant="", seed=0, note="", **rows):
    """What a cell might have left behind; InD and OOD lie two points around Mix."""
    headline = "switch" if algorithm == "fedpn" else "personal"
    accuracy = {
        who: {"ind": value + 0.02, "ood": value - 0.02, "mix": value}
        for who, value in ({headline: mix} | rows).items()
    }
    routing = {"auroc": 0.95, "gap_closed": 0.25, "score": "log_density"}
    sent = {"delegated": {"ind": 0.1, "ood": 0.9}}
    return {
        "dataset": dataset,
        "algorithm": algorithm,
        "variant": variant,
        "seed": seed,
        "settings": {},
        "rounds": 100,
        "headline": headline,
        "accuracy": accuracy,
        "note": note,
    } | ({"routing": routing | sent} if algorithm == "fedpn" else {})


# The paper as printed


def test_published_figures_add_up_to_sums_made_by_hand():
    """Sums over the seven sets, in the order of Table 2, added up apart from the file."""
    sums = {"ind": 606.4, "ood": 526.6, "mix": 563.8}
    for split, total in sums.items():
        assert sum(benchmark(d, "fedpn", split) for d in PAPER_SETS) == pytest.approx(total)
    assert sum(benchmark(d, "fedavg", "mix") for d in PAPER_SETS) == pytest.approx(378.4)
    assert sum(in_distribution(d, "local") for d in PAPER_SETS) == pytest.approx(640.5)
    assert sum(in_distribution(d, "fedpn") for d in PAPER_SETS) == pytest.approx(648.7)


def test_published_rows_as_printed():
    rows = {
        "svhn": "80.6 76.7 78.3 94.7 0.0 47.3 93.4 9.5 51.4 94.9 11.2 53.0 95.4 6.5 50.9 "
        "74.4 71.9 73.3 80.5 42.5 59.3 87.1 62.2 73.4",
        "organcmnist": "49.5 45.5 43.6 93.0 0.0 46.5 91.7 2.4 47.5 95.0 13.6 54.1 95.2 10.9 54.0 "
        "50.0 43.3 44.3 95.4 53.3 73.3 94.4 88.7 91.2",
    }
    for dataset, line in rows.items():
        typed = np.array(line.split(), float).reshape(8, 3).tolist()
        assert [published()["benchmark"][dataset][a] for a in COLUMNS] == typed


def test_every_table_is_whole():
    tables = published()
    for name, width in (("benchmark", 8), ("in_distribution", 9), ("ind", 8), ("ood", 8)):
        assert list(tables[name]) == list(PAPER_SETS)
        assert all(len(row) == width + 1 and row["bold"] for row in tables[name].values())


def test_slips_are_found():
    text = "\n".join(slips())
    assert "APFL on MNIST (77.9 and 58.9, Mix 98.4)" in text
    assert "SVHN marks FedPN (73.4) as best; FedAvg has 78.3" in text
    assert "MedMNIST-A marks FedPer (97.7) as best; APFL has 98.0" in text
    assert "FedPN on MNIST (" not in text
    assert "in the appendix" not in text  # the appendix repeats the benchmark rightly


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
    assert recorded(other, tmp_path) is None


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
    company = Company(lambda stage, done, of, **facts: told.append(stage))
    routed = settle(tiny(variant="gaussian"), tmp_path, company)
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
    monkeypatch.setattr("fedpn.experiments.grid.at_hand", lambda name: True)
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


# Tuning


def test_candidates_never_see_test_rows(tmp_path, monkeypatch):
    seen = {}
    real = tune.play_rounds

    def spy(config, ready, out, company):
        seen["federation"] = ready.federation
        return real(config, ready, out, company)

    monkeypatch.setattr(tune, "play_rounds", spy)
    found = tune.try_out("digits", TINY | {"personal_steps": [2, 4]}, tmp_path, Company())
    _, whole = deal(resolve([TINY, {"dataset": "digits"}]))
    tests = np.concatenate(whole.test)
    used = seen["federation"]
    for rows in (used.train, used.calibration, used.test):
        assert not np.isin(np.concatenate(rows), tests).any()
    assert np.array_equal(used.test[0], tuning(whole, tune.SPLIT).test[0])
    assert [f["personal_steps"] for f in found] == [2] * 10 + [4] * 10


def test_candidates_are_sound():
    for dataset in (*PAPER_SETS, "medicalmnist"):
        for candidate in tune.candidates(dataset).values():
            resolve([{k: v for k, v in candidate.items() if k != "personal_steps"}])


# Verdicts and the ledger


def test_a_baseline_above_fedpn_is_told_with_a_reason():
    tally = Tally(
        (
            record("mnist", "fedpn", 0.95, local=0.5, **{"global": 0.94, "oracle": 0.97}),
            record("mnist", "fedavg", 0.96),
            record("mnist", "fedavg", 0.85, "reset"),
            record("svhn", "fedpn", 0.80, local=0.5, **{"global": 0.81, "oracle": 0.85}),
            record("svhn", "fedavg", 0.70),
        )
    )
    best = claims.best_on_mix(tally)
    assert best.verdict == verdict.IN_PART
    assert "MNIST 95.0 (its global model alone 94.0) against 96.0 of FedAvg" in best.why
    assert "85.0 with its momentum reset" in best.why
    assert "FedPN would have 97.0" in best.why
    both = claims.switch_beats_both(tally)
    assert both.verdict == verdict.IN_PART
    assert "MNIST +1.0, 25 % of the oracle's gain" in both.why
    assert "SVHN -1.0" in both.why


def test_the_best_of_a_candidate_is_shown():
    found = [
        {"accuracy": {"switch": {"mix": mix}}, "personal_steps": 9, "score": score, "outliers": 0.2}
        for mix, score in ((71.0, "log_density"), (72.5, "entropy"))
    ]
    table = tried({"svhn": {"adam": {"candidate": {"method": {"lr": 0.1}}, "found": found}}})
    assert table.rows == [("SVHN: adam", ["method.lr 0.1", "9", "entropy, 20 %", "72.5"])]


def test_methods_are_compared_on_like_seeds():
    """An easy deal of a second seed is no merit of the method that was run with it."""
    easy = record("mnist", "fedpn", 0.99, seed=1, local=0.5, **{"global": 0.99, "oracle": 0.99})
    hard = record("mnist", "fedpn", 0.90, local=0.5, **{"global": 0.90, "oracle": 0.93})
    verdict_ = claims.best_on_mix(Tally((easy, hard, record("mnist", "fedavg", 0.92))))
    assert verdict_.verdict == verdict.NOT
    assert "MNIST 90.0 (its global model alone 90.0) against 92.0" in verdict_.why


def test_tally_over_seeds():
    tally = Tally(tuple(record("mnist", "fedpn", m, seed=i) for i, m in enumerate((0.97, 0.98))))
    assert str(tally.accuracy("mnist", "fedpn", "mix")) == "97.5 ± 0.5"
    assert tally.accuracy("mnist", "fedavg", "mix") is None


def test_the_ledger_shows_what_is_missing():
    records = [
        record(
            "organamnist",
            "fedpn",
            0.8,
            note="a subset: 6851 of 34561 training rows",
            local=0.5,
            **{"global": 0.7, "oracle": 0.9},
        )
    ]
    book = ledger.make(records, {}, {}, here={"mnist"})
    text, page = ledger_markdown.render(book), ledger_html.render(book)
    for shown in (text, page):
        assert "MedMNIST-A (subset)" in shown
        assert "MedMNIST-C: data not at hand" in shown
        assert "MNIST: not run" in shown
        assert "{{" not in shown
    assert "**80.0** (95.5, −15.5)" in text
    assert "– (91.2)" in text
    assert "http" not in page, "the page needs nothing from elsewhere"


def test_an_empty_ledger(tmp_path):
    ledger.write(tmp_path, tmp_path / "pages", {"mnist-fedpn-s0": "it broke"})
    text = (tmp_path / "pages/ledger.md").read_text()
    assert verdict.UNTESTED in text
    assert "mnist-fedpn-s0: it broke" in text


def test_the_ledger_in_docs_is_that_of_the_results():
    """After a change of results or words: fedpn paper --only ledger --pages docs."""
    book = ledger.make(
        read_records(RESULTS), ledger.read_figures(RESULTS), ledger.read_tuning(RESULTS)
    )
    assert (RESULTS.parent / "docs/ledger.md").read_text() == ledger_markdown.render(book)
    assert (RESULTS.parent / "docs/ledger.html").read_text() == ledger_html.render(book)


def test_every_kept_cell_still_counts_as_done():
    """Else the next `fedpn paper` would run them all again; those cut short it shall run again."""
    for kept in read_records(RESULTS):
        cell = Cell(*(kept[key] for key in ledger.CELL))
        cut = kept["rounds"] < cell.config().rounds
        wanted = cell.settings() | ({"rounds": kept["rounds"]} if cut else {})
        assert kept["settings"] == wanted, cell.name


# Several at a time


def _nothing(company):
    return None


def _fails(company):
    raise ValueError("broken on purpose")


def _dies(company):
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_fails_does_not_stop_the_others():
    jobs = [
        crew.Job("bad", _fails),
        crew.Job("dead", _dies),
        crew.Job("good", _nothing),
        crew.Job("after", _nothing, needs=frozenset(["good"])),
    ]
    heard = []
    wrong = crew.play(jobs, 2, lambda job, done, words="": heard.append((job.name, words)), bool)
    assert wrong == {
        "bad": "ValueError: broken on purpose",
        "dead": "its process ended with status -9",
    }
    assert heard.index(("good", "done")) < heard.index(("after", "done"))


def test_stopping_lets_no_other_begin():
    jobs = [crew.Job(name, _nothing) for name in "abc"]
    assert crew.play(jobs, 1, lambda job, done, words="": None, lambda: True) == {}


def _options(out: Path) -> list[str]:
    options = ["--quick", "--datasets", "digits", "--algorithms", "fedavg", "--rounds", "6"]
    return ["paper", *options, "--only", "benchmark", "--out", str(out)]


def _command(out: Path) -> list[str]:
    return [sys.executable, "-m", "fedpn.cli", *_options(out), "--jobs", "1"]


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
    monkeypatch.setattr("fedpn.experiments.grid.QUICK", TINY)
    out = tmp_path / "results"
    options = ["--quick", "--datasets", "digits", "--out", str(out)]
    ensure(Cell("digits", "local", rounds=1, changes=TINY | {"clients": 5}), out)
    assert main(["paper", *options, "--only", "benchmark,landscape"]) == 1
    assert "digits-local-s0: UserError: --resume: clients was 5" in capfd.readouterr().err
    names = {p.stem for p in (out / "cells").glob("*.json")}
    assert {f"digits-{a}-s0" for a in COLUMNS} | {f"digits-{a}-gaussian-s0" for a in ROUTED} < names
    page = (out / "ledger.html").read_text()
    assert "<figure id=landscape " in page
    assert "digits-local-s0" in page, "what failed is on the page"
    assert main(["paper", *options, "--only", "ledger", "--pages", str(tmp_path / "docs")]) == 0
    assert "digits" in (tmp_path / "docs/ledger.md").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "benchmarks"], "--only 'benchmarks'"),
        (["--datasets", "mnits"], "--datasets 'mnits'"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--datasets", "organcmnist"], "at hand"),
    ],
)
def test_mistakes_are_told(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FEDPN_DATA", str(tmp_path))
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path))
    assert main(["paper", "--out", str(tmp_path / "out"), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_cell_with_another_seed_has_another_place():
    assert replace(tiny(), seed=4).name == "digits-fedpn-s4"
