"""A messy table from the raw file to answers, beside scikit-learn on pooled rows."""

import csv

import numpy as np
import pandas
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fedpn
from clinic import CATEGORIES, NUMBERS, rows, write
from fedpn.cli.main import main
from fedpn.core.store import read_json
from fedpn.runs.config import resolve
from fedpn.runs.directory import stored
from fedpn.runs.prepare import deal
from fedpn.serving.export import CARD

COLUMNS = ["--set", "data.label=Diagnose", "--set", "data.client=Klinik"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The raw table, new patients in another order of columns, and a run, by three commands."""
    place = tmp_path_factory.mktemp("clinic")
    write(place / "clinic.csv", rows())
    new = [dict(reversed(row.items())) for row in rows(50, seed=9)]
    new[0]["Station"] = "Augenklinik"
    write(place / "new.csv", new)
    return place


@pytest.fixture(scope="module")
def run(place):
    out = place / "run"
    command = ["run", str(place / "clinic.csv"), "--algorithm", "analytic", *COLUMNS]
    assert main([*command, "--out", str(out)]) == 0
    return out


def test_what_is_told_before(place, capsys):
    assert main(["data", "check", str(place / "clinic.csv"), *COLUMNS]) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines() if line}
    for name, words in {
        "Patient": "left out: its texts are nearly all different",
        "Nr": "left out: it is an identifier",
        "Land": "left out: it has one value only",
        "Alter": "missing: 62",
        "CRP": "missing: 12",
        "Station": "5 columns, one a value; missing: 'Innere'",
        "Raucher": "0 and 1; missing: 0",
        "Aufnahme": "days since 1970",
    }.items():
        assert words in lines[name]
    odd = sum(row["CRP"] == "<5" for row in rows())
    assert f"'CRP': {odd} cells that are no number, such as '<5', count as missing" in said
    assert "it was read as cp1252" in said
    assert "data.categories=['Dosis']" in said
    assert "less than 95 rows" in said and "Insel" in said
    assert "`fedpn run` takes them as it is set, with 4 clients" in said


def test_answers(place, run, capsys):
    out = place / "answers.csv"
    command = ["predict", str(run), str(place / "new.csv"), "--client", "Insel", "--id", "Patient"]
    assert main([*command, "--out", str(out)]) == 0
    with out.open(encoding="utf-8") as file:
        told = list(csv.DictReader(file))
    assert [row["Patient"] for row in told] == [f"P{100000 + i}" for i in range(50)]
    # The library takes the same rows as a frame, in any order of columns.
    frame = pandas.read_csv(place / "new.csv", sep=";", encoding="latin-1", dtype=str)
    again = fedpn.load(run, client="Insel")(frame[sorted(frame)])
    assert [answer.guess for answer in again] == [row["guess"] for row in told]
    one = fedpn.load(run, client="Insel")([dict(frame.iloc[3])], own_share=1.0)
    assert one[0].guess in ("gesund", "krank")


def test_as_good_as_scikit_learn_on_pooled_rows(place, run):
    frame = pandas.read_csv(place / "clinic.csv", sep=";", encoding="latin-1", dtype=str)
    _, federation = deal(resolve([stored(run)]))
    train, test = (np.concatenate(part) for part in (federation.train, federation.test))
    y = (frame["Diagnose"] == "krank").to_numpy()
    numbers = frame[NUMBERS].apply(lambda c: c.str.replace(".", "").str.replace(",", "."))
    x = numbers.apply(pandas.to_numeric, errors="coerce").join(frame[CATEGORIES])
    x["Aufnahme"] = pandas.to_datetime(frame["Aufnahme"], dayfirst=True, format="%d.%m.%Y")
    x["Aufnahme"] = x["Aufnahme"].astype("int64") / 8.64e13
    x[CATEGORIES] = x[CATEGORIES].fillna("missing")
    plain = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    encoder = make_column_transformer(
        (plain, [*NUMBERS, "Aufnahme"]), (OneHotEncoder(), CATEGORIES)
    )
    model = make_pipeline(encoder, LogisticRegression(max_iter=1000))
    theirs = model.fit(x.iloc[train], y[train]).predict_proba(x.iloc[test])[:, 1]
    ours = []
    for client, name in enumerate(fedpn.open(run).clients):
        mine = frame.iloc[federation.test[client]]
        ours.append(fedpn.load(run, client=name).predict_proba(mine)[:, 1])
    auroc = [roc_auc_score(y[test], scores) for scores in (np.concatenate(ours), theirs)]
    assert auroc[0] > auroc[1] - 0.02, auroc


def test_a_small_site_takes_part_with_what_it_has(run):
    warnings = " ".join(read_json(run / "metrics.json")["warnings"])
    assert "client Insel: too few rows for limits of its own" in warnings
    assert "Insel" in (run / "report.html").read_text(encoding="utf-8")


def test_the_recipe_stays_with_the_models(run, tmp_path):
    assert main(["export", str(run), "--client", "Insel", "--out", str(tmp_path / "insel")]) == 0
    bundle = fedpn.load(tmp_path / "insel").bundle
    recipe = bundle.about.recipe
    assert bundle.features == recipe.names and bundle.blueprint.shape == (recipe.width,)
    ward = next(column for column in recipe.columns if column.name == "Station")
    assert ward.names[0] == "Innere" and len(ward.names) == 5
    card = (tmp_path / "insel" / CARD).read_text(encoding="utf-8")
    assert "Station" in card


def test_a_newcomer_is_prepared_as_the_others_were(place, run, tmp_path):
    late = [row | {"Station": "Augenklinik"} for row in rows(120, seed=3)]
    for row in late:
        del row["Klinik"], row["Land"], row["Patient"]
    write(tmp_path / "late.csv", late, "utf-16")
    command = ["join", str(run), str(tmp_path / "late.csv"), "--client", "Oslo"]
    assert main([*command, "--out", str(tmp_path / "oslo")]) == 0
    ours, theirs = fedpn.load(tmp_path / "oslo").bundle.about, fedpn.load(run, "Insel").bundle.about
    assert ours.recipe.names == theirs.recipe.names
    assert ours.recipe.width == theirs.recipe.width


def test_from_a_frame(place, tmp_path):
    frame = pandas.read_csv(place / "clinic.csv", sep=";", encoding="latin-1").head(600)
    run = fedpn.run(
        tmp_path / "run",
        dataset=frame,
        algorithm="analytic",
        head__fourier=50,
        data__label="Diagnose",
        data__client="Klinik",
    )
    assert len(run.predictor("St. Anna")(frame.head(5))) == 5


def test_rounds_of_a_trained_head(place, tmp_path):
    """The recipe is learned before the network, whatever the network learns by."""
    quick = {"rounds": 2, "train__steps": 2, "method__adapt_epochs": 1, "method__adapt_steps": 4}
    columns = {"data__label": "Diagnose", "data__client": "Klinik"}
    quick |= columns | {"algorithm": "fedpn"}
    run = fedpn.run(tmp_path / "run", dataset=str(place / "clinic.csv"), **quick)
    again = fedpn.run(tmp_path / "run", resume=True, rounds=3)
    assert (run["rounds"], again["rounds"]) == (2, 3)
