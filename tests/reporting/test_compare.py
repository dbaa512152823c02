"""Methods side by side."""

import csv

import numpy as np
import pytest

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.reporting.compare import compare

SMALL = {"dataset": "digits", "clients": 4, "rounds": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for name, settings in {
        "fedavg-0": {"algorithm": "fedavg"},
        "fedavg-1": {"algorithm": "fedavg", "seed": 1},
        "fedavg-2": {"algorithm": "fedavg", "seed": 2, "engine__cohort": 1},
        "routed": {"algorithm": "fedavg", "routing__router": "gaussian"},
        "slow": {"algorithm": "fedavg", "method__lr": 0.0001},
        "local": {"algorithm": "local"},
    }.items():
        fedpn.run(home / name, **SMALL, **settings)
    return home


def test_seeds_make_one_row_and_the_best_comes_first(runs):
    paths = [runs / name for name in ("local", "fedavg-0", "fedavg-1")]
    head, *rows = compare(paths)
    found = {path.name: store.read_json(path / "metrics.json") for path in paths}
    mixes = [found[f"fedavg-{s}"]["accuracy"]["global"]["mix"] for s in (0, 1)]
    lines = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    mean, error = 100 * np.mean(mixes), 100 * abs(mixes[0] - mixes[1]) / 2
    assert lines["fedavg"]["Mix, %"] == f"{mean:.1f} ± {error:.1f}"
    assert lines["fedavg"]["seeds"] == "0, 1"
    local = found["local"]["accuracy"]["personal"]["mix"]
    assert lines["local"]["Mix, %"] == f"{100 * local:.1f}"
    best = "fedavg" if mean > 100 * local else "local"
    assert rows[0][0] == best
    assert "AUROC" not in head  # nobody has a switch


def test_what_differs_within_a_method_is_named(runs):
    head, *rows = compare([runs / name for name in ("fedavg-0", "routed", "slow", "local")])
    names = {row[0] for row in rows}
    assert "fedavg routing.router=gaussian fedavg.lr=0.02" in names
    assert "fedavg fedavg.lr=0.0001" in names
    assert "local" in names
    assert "AUROC" in head


def test_seeds_of_another_engine_are_seeds_all_the_same(runs, capsys):
    """Figures do not depend on how many clients were stacked, or where."""
    paths = [runs / name for name in ("fedavg-0", "fedavg-2")]
    _, row = compare(paths)
    assert (row[0], row[2]) == ("fedavg", "0, 2")
    assert main(["report", *map(str, paths)]) == 0
    assert "seeds 0, 2" in capsys.readouterr().out


def test_runs_that_cannot_be_compared(runs, tmp_path):
    fedpn.run(tmp_path / "other", **SMALL | {"clients": 3}, algorithm="fedavg")
    with pytest.raises(UserError, match="differ in clients"):
        compare([runs / "fedavg-0", tmp_path / "other"])
    with pytest.raises(UserError, match="same seed"):
        compare([runs / "fedavg-0", runs / "fedavg-0"])


def test_the_command_prints_and_writes(runs, tmp_path, capsys):
    asked = ["compare", str(runs / "fedavg-0"), str(runs / "local")]
    assert main([*asked, "--out", str(tmp_path / "table.csv")]) == 0
    with (tmp_path / "table.csv").open() as file:
        written = list(csv.DictReader(file))
    assert {row["method"] for row in written} == {"fedavg", "local"}
    assert main([*asked, "--out", str(tmp_path / "table.md")]) == 0
    assert (tmp_path / "table.md").read_text().startswith("| method | answers |")
    assert "method" in capsys.readouterr().out
    assert main([*asked, "--out", str(tmp_path / "table.xls")]) == 2
    assert main(["compare", str(tmp_path)]) == 2
