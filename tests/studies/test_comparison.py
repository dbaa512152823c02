"""Finished runs side by side: differences against scipy, tables with numbers, pictures."""

import csv
import json
import shutil
import tomllib
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest
from scipy import stats

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.data.sources.datasets import load as load_dataset
from fedpn.reporting.clients import Seen
from fedpn.reporting.compare import Method
from fedpn.reporting.differences import differences
from fedpn.reporting.finished import ClientMetrics

SMALL = {"dataset": "digits", "clients": 4, "rounds": 2}
METHODS = {
    "fedavg": {"algorithm": "fedavg"},
    "slow": {"algorithm": "fedavg", "method__lr": 0.0001},
    "analytic": {"algorithm": "analytic", "head__filters": 4, "head__fourier": 0},
}
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    for name, settings in METHODS.items():
        for seed in range(3):
            fedpn.run(home / f"{name}-{seed}", **SMALL, **settings, seed=seed)
    return home


def _values(runs, name, of):
    """Accuracies from the files themselves, [seeds, clients]."""
    trees = [store.read_json(runs / f"{name}-{seed}" / "metrics.json") for seed in range(3)]
    return np.array([[c["accuracy"][t["headline"]][of] for c in t["per_client"]] for t in trees])


def _names(runs, *names):
    return [runs / f"{name}-{seed}" for name in names for seed in range(3)]


@pytest.mark.parametrize("of", ["ind", "ood", "mix"])
def test_differences_are_those_of_scipy(runs, of):
    found = fedpn.compare(_names(runs, "fedavg", "analytic"))
    row = found.differences().set_index("set").loc[of]
    one, other = _values(runs, row["better"], of), _values(runs, row["other"], of)
    wanted = stats.ttest_rel(one.mean(1), other.mean(1))
    ends = wanted.confidence_interval(0.95)
    assert row["difference"] == pytest.approx((one - other).mean()) and row["difference"] >= 0
    assert row["p"] == pytest.approx(wanted.pvalue) and row["p_holm"] == pytest.approx(row["p"])
    assert (row["low"], row["high"]) == pytest.approx((ends.low, ends.high))
    assert row["clients_better"] == pytest.approx((one > other).mean())
    assert (row["seeds"], row["clients"]) == (3, 4)


def test_a_difference_in_words(runs):
    text = repr(fedpn.compare(_names(runs, "fedavg", "analytic")))
    p = stats.ttest_rel(*(_values(runs, n, "mix").mean(1) for n in ("analytic", "fedavg"))).pvalue
    assert p < 0.05  # two rounds are far from what a head in closed form comes to
    assert "analytic is above fedavg on own and foreign rows by " in text
    assert "over 4 clients × 3 seeds); 100 % of clients are better off with analytic" in text
    assert "dealt and trained anew, not of other data" in text


def test_p_is_corrected_for_the_number_of_pairs(runs):
    table = fedpn.compare(_names(runs, *METHODS)).differences()
    for _, rows in table.groupby("set"):
        assert len(rows) == 3
        least = rows.sort_values("p").iloc[0]
        assert least["p_holm"] == pytest.approx(min(1, 3 * least["p"]))
        assert (rows["p_holm"] >= rows["p"]).all()


def test_with_one_seed_it_is_said_that_seeds_were_not_varied(runs):
    found = fedpn.compare([runs / "fedavg-0", runs / "analytic-0"])
    assert "Seeds were not varied" in repr(found)
    row = found.differences().set_index("set").loc["ind"]
    one, other = _values(runs, row["better"], "ind")[0], _values(runs, row["other"], "ind")[0]
    assert row["p"] == pytest.approx(stats.ttest_rel(one, other).pvalue)


def test_without_seeds_in_common_nothing_is_tested(runs):
    found = fedpn.compare([runs / "fedavg-0", runs / "analytic-1"])
    assert "no seed in common" in repr(found) and len(found.differences()) == 0
    assert repr(fedpn.compare([runs / "fedavg-0"])).count("\n") == 2  # a single run: its row


def test_seeds_that_only_one_has_do_not_count(runs):
    found = fedpn.compare([*_names(runs, "fedavg"), runs / "analytic-0", runs / "analytic-2"])
    row = found.differences().set_index("set").loc["mix"]
    one, other = (_values(runs, n, "mix")[[0, 2]].mean(1) for n in (row["better"], row["other"]))
    assert row["p"] == pytest.approx(stats.ttest_rel(one, other).pvalue)


def test_the_table_is_of_numbers(runs):
    table = fedpn.compare(_names(runs, "fedavg", "analytic")).table()
    assert table["method"].tolist() == ["analytic", "fedavg"]
    means = _values(runs, "fedavg", "mix").mean(1)
    row = table.set_index("method").loc["fedavg"]
    assert row["mix"] == pytest.approx(means.mean())
    assert row["mix_error"] == pytest.approx(stats.sem(means))


def test_runs_are_given_as_objects_too(runs):
    page = fedpn.compare([fedpn.open(runs / "fedavg-0"), str(runs / "slow-0")])._repr_html_()
    assert "<svg" in page and "fedavg.lr=0.0001" in page and "<td>" in page
    for wrong in ([], "runs/a"):
        with pytest.raises(UserError, match="list of runs"):
            fedpn.compare(wrong)


def test_long_tables_have_numbers_as_numbers(runs, tmp_path, capsys):
    asked = ["compare", *map(str, _names(runs, "fedavg", "slow"))]
    files = {name: tmp_path / f"t.{name}" for name in ("csv", "parquet", "png")}
    asked += ["--csv", str(files["csv"]), "--parquet", str(files["parquet"])]
    asked += ["--plot", str(files["png"]), "--differences", str(tmp_path / "d.jsonl")]
    assert main(asked) == 0
    with files["csv"].open() as file:
        rows = list(csv.DictReader(file))
    columns = "run method dataset algorithm seed client answers headline set value fedavg.lr"
    assert list(rows[0]) == columns.split()
    table = parquet.read_table(files["parquet"]).to_pandas()
    assert [str(table.dtypes[c]) for c in ("seed", "value", "fedavg.lr")] == [
        "int64",
        "float64",
        "float64",
    ]
    mine = table[(table["headline"]) & (table["set"] == "ind") & (table["fedavg.lr"] < 0.001)]
    assert sorted(mine["value"]) == pytest.approx(sorted(_values(runs, "slow", "ind").ravel()))
    assert [float(r["value"]) for r in rows] == pytest.approx(table["value"].tolist())
    assert files["png"].read_bytes().startswith(PNG)
    told = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert {type(row["p"]) for row in told} == {float}
    capsys.readouterr()


def test_names_are_no_formulas(tmp_path):
    digits = load_dataset("digits")
    owner = np.array(["=1+1", "@b"])[np.arange(len(digits.y)) % 2]
    data = (digits.x[:, 0], digits.y, owner)
    settings = {"algorithm": "analytic", "head__filters": 2, "head__fourier": 0}
    fedpn.run(tmp_path / "a", dataset=data, **settings)
    assert main(["compare", str(tmp_path / "a"), "--csv", str(tmp_path / "t.csv")]) == 0
    with (tmp_path / "t.csv").open() as file:
        assert {row["client"] for row in csv.DictReader(file)} == {"'=1+1", "'@b"}


def test_clients_with_other_rows_are_not_paired(tmp_path):
    digits = load_dataset("digits")
    settings = {"algorithm": "analytic", "head__fourier": 0, "clients": 3}
    for name, rows, filters in (("a", 1797, 2), ("b", 1500, 3)):
        data = (digits.x[:rows, 0], digits.y[:rows])
        fedpn.run(tmp_path / name, dataset=data, head__filters=filters, **settings)
    with pytest.raises(UserError, match="client 0 has other rows"):
        fedpn.compare([tmp_path / "a", tmp_path / "b"]).differences()


def _made_up(name, table):
    """A method with these accuracies, [seeds, clients], on all sets of rows."""
    by_seed = {
        seed: {
            str(c): ClientMetrics(
                c, (0,), 10, {"global": dict.fromkeys(("ind", "ood", "mix"), v)}, {}
            )
            for c, v in enumerate(row)
        }
        for seed, row in enumerate(table)
    }
    runs = [SimpleNamespace(seed=seed, headline="global") for seed in by_seed]
    return Seen(Method(name, {"algorithm": name}, runs, []), by_seed, {})


def test_whoever_is_above_comes_first_whatever_the_order():
    rng = np.random.default_rng(0)
    one, other = rng.random((3, 5)), rng.random((3, 5)) + 0.05
    forth = differences([_made_up("one", one), _made_up("other", other)])
    back = differences([_made_up("other", other), _made_up("one", one)])
    for mine, theirs in zip(forth, back, strict=True):
        assert (mine.better, mine.gaining) == (theirs.better, theirs.gaining)
        assert mine.found.interval == pytest.approx(theirs.found.interval)
        assert mine.found.mean == pytest.approx(theirs.found.mean) and mine.found.mean > 0
        assert mine.found.interval[0] < mine.found.mean < mine.found.interval[1]


def test_settings_that_an_older_version_did_not_know_of_are_as_if_left_open(runs, tmp_path):
    shutil.copytree(runs / "fedavg-0", tmp_path / "old")
    settings = tomllib.loads((tmp_path / "old" / "config.toml").read_text())
    del settings["data"]["without"], settings["data"]["partition"]
    store.write_toml(tmp_path / "old" / "config.toml", settings)
    store.seal(tmp_path / "old")
    found = fedpn.compare([runs / "fedavg-1", tmp_path / "old"])
    assert found.lines()[1][:3] == ["fedavg", "global", "0, 1"]


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--csv", "t.txt", "must end in .csv"),
        ("--parquet", "t.csv", "must end in .parquet"),
        ("--plot", "t.doc", "must end in .png, .svg, .pdf"),
        ("--plot", "no/t.png", "there is no directory"),
        ("--differences", "t.xls", "must end in .csv"),
    ],
)
def test_mistakes(runs, option, name, words, tmp_path, capsys):
    asked = ["compare", str(runs / "fedavg-0"), option, str(tmp_path / name)]
    assert main(asked) == 2
    told = capsys.readouterr().err
    assert words in told and option in told


def test_of_many_methods_those_with_the_best_are_told(runs, tmp_path):
    fedpn.run(tmp_path / "more", **SMALL, algorithm="fedavg", method__lr=0.001)
    found = fedpn.compare([*(runs / f"{name}-0" for name in METHODS), tmp_path / "more"])
    best = found.methods[0].name
    told = [line for line in found.sentences() if " on own" in line]
    assert len(told) == 6 and all(best in line for line in told)
    assert len(found.differences()) == 18
