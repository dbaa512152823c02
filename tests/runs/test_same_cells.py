"""A cell is read in one way, wherever it comes from: training, a file, one row, a frame, HTTP."""

import numpy as np
import pandas
import pytest

import fedpn
from clinic import rows, write
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.core.store import read_json
from fedpn.flower.app.share import open_share
from fedpn.runs.config import resolve
from fedpn.runs.directory import stored
from fedpn.runs.membership import join, update
from fedpn.runs.prepare import prepare
from fedpn.service.decode import decode
from fedpn.service.library import Library
from fedpn.serving.conform import as_array
from fedpn.serving.export import export
from fedpn.serving.inputs import read_inputs
from fedpn.serving.labelled import read_labelled, score

FAST = {"algorithm": "analytic", "head__fourier": 20}
CLINIC = {"data__label": "Diagnose", "data__client": "Klinik"}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    place = tmp_path_factory.mktemp("cells")
    table = rows(600, seed=5)
    for i, row in enumerate(table):
        row["Temperatur"] = f"{36 + i % 40 / 10:.3f}"  # with points, where all else has commas
        row["Code"] = ("250.1", "250.2", "V10")[i % 3]
    write(place / "clinic.csv", table)
    fedpn.run(place / "run", dataset=str(place / "clinic.csv"), **FAST, **CLINIC)
    return place, table


def test_each_row_alone_is_prepared_as_in_training(clinic):
    place, table = clinic
    learned = prepare(resolve([stored(place / "run")])).dataset
    bundle = fedpn.load(place / "run", "Insel").bundle
    about = bundle.about
    assert about.recipe == learned.recipe
    frame = pandas.DataFrame(table)
    for i in range(60):
        write(place / "one.csv", [table[i]])
        form = (about.blueprint.shape, about.features)
        doors = {
            "file": read_inputs(place / "one.csv", *form, about.recipe).rows,
            "dict": as_array([table[i]], bundle),
            "frame": as_array(frame.iloc[i : i + 1], bundle),
            "http": decode(
                [{name: table[i][name] for name in about.features}], *form, about.recipe
            ).rows,
        }
        for name, found in doors.items():
            np.testing.assert_array_equal(found[0], learned.x[i], err_msg=f"{name}, row {i}")


def test_parts_of_a_file_are_read_alike(clinic, tmp_path):
    place, table = clinic
    about = fedpn.load(place / "run", "Insel").bundle.about
    form = (about.blueprint.shape, about.features, about.recipe)
    whole = read_inputs(place / "clinic.csv", *form).rows
    write(tmp_path / "tail.csv", table[-3:])
    np.testing.assert_array_equal(read_inputs(tmp_path / "tail.csv", *form).rows, whole[-3:])


def test_numbers_that_are_names_are_known_again(tmp_path):
    codes = ["73211009", "44054006", "46635009"]
    lines = [f"{codes[i % 3]},{i % 7}.5,{'ab'[i % 3 == 0]},{'xy'[i % 2]}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["code,x,label,client", *lines]))
    named = {"data__categories": ["code"], "routing__strangers": 0.0}
    run = fedpn.run(tmp_path / "run", dataset=str(tmp_path / "t.csv"), **FAST, **named)
    (tmp_path / "new.csv").write_text("code,x\n73211009,1.5\n44054006,2.5\n")
    bundle = run.predictor("x").bundle
    recipe = bundle.about.recipe
    assert set(recipe.columns[0].names) == set(codes)
    found = read_inputs(tmp_path / "new.csv", (recipe.width,), recipe.names, recipe).rows
    assert [recipe.told(row)[0] for row in found] == ["73211009", "44054006"]
    typed = pandas.DataFrame({"code": [73211009, 44054006], "x": [1.5, 2.5]})
    np.testing.assert_array_equal(as_array(typed, bundle), found)
    assert score(run.predictor("x"), read_labelled(str(tmp_path / "t.csv"), bundle))[
        "accuracy, were all answered"
    ] == pytest.approx(1.0)


def test_what_cannot_be_read_is_answered_by_nobody(clinic, capsys, tmp_path):
    place, table = clinic
    row = dict(table[0]) | {"Kosten": "1.2OO,50"}
    answer = fedpn.load(place / "run", "Insel")([row])[0]
    assert answer.outcome == "stranger" and answer.label is None
    write(tmp_path / "odd.csv", [row])
    assert (
        main(["predict", str(place / "run"), str(tmp_path / "odd.csv"), "--client", "Insel"]) == 0
    )
    said = capsys.readouterr().err
    assert "'Kosten': 1 cells that are no number, such as '1.2OO,50', make their rows str" in said


def test_misspelt_names_are_told(clinic):
    place, table = clinic
    row = {("kosten" if name == "Kosten" else name): v for name, v in table[0].items()}
    with pytest.raises(UserError, match="lacks the features Kosten"):
        fedpn.load(place / "run", "Insel")([row])


def test_new_rows_are_read_as_the_run_was(tmp_path):
    """Dates that could be either, where the run had the month first."""
    days = ["04/13/2024", "02/08/2024", "07/30/2024", "01/02/2024"]
    lines = [f"{days[i % 4]},{i % 5},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(["seen,n,label,client", *lines]))
    fedpn.run(tmp_path / "run", dataset=str(tmp_path / "t.csv"), **FAST)
    new = [f"02/08/2024,{i % 5},{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "new.csv").write_text("\n".join(["seen,n,label", *new]))
    join(tmp_path / "run", str(tmp_path / "new.csv"), "late", tmp_path / "late")
    update(tmp_path / "run", str(tmp_path / "new.csv"), "x", tmp_path / "more")
    for name in ("run", "late", "more"):
        about = fedpn.load(tmp_path / name, "x" if name != "late" else None).bundle.about
        assert about.recipe.columns[0].day_first == "no"
        inputs = read_inputs(
            tmp_path / "new.csv", about.blueprint.shape, about.features, about.recipe
        )
        assert inputs.rows[0, 0] == np.datetime64("2024-02-08").astype(int)
    # A batch of one class can be judged, and learned from.
    (tmp_path / "one.csv").write_text("\n".join(["seen,n,label", *[x[:-1] + "a" for x in new]]))
    bundle = fedpn.load(tmp_path / "run", "x").bundle
    assert len(read_labelled(str(tmp_path / "one.csv"), bundle).y) == 60
    update(tmp_path / "run", str(tmp_path / "one.csv"), "x", tmp_path / "again")


def test_gaps_where_a_run_knew_none_are_told(tmp_path):
    lines = [f"{i % 9},{i % 5},{'ab'[i % 2]},{'xyz'[i % 3]}" for i in range(240)]
    (tmp_path / "t.csv").write_text("\n".join(["m,n,label,client", *lines]))
    fedpn.run(tmp_path / "run", dataset=str(tmp_path / "t.csv"), **FAST)
    (tmp_path / "gap.csv").write_text("m,n,label\n1,,a\n" + "2,3,b\n" * 40)
    for change in (join, update):
        with pytest.raises(UserError, match="the run was trained on numbers alone"):
            name = "x" if change is update else "w"
            change(tmp_path / "run", str(tmp_path / "gap.csv"), name, tmp_path / "o")


def test_rows_that_are_prepared_already(clinic, tmp_path):
    """As `fedpn reviews` writes them."""
    place, table = clinic
    bundle = fedpn.load(place / "run", "Insel").bundle
    x = as_array(table[:40], bundle)
    labels = np.array([row["Diagnose"] for row in table[:40]])
    np.savez(tmp_path / "reviews.npz", x=x, labels=labels)
    assert read_labelled(str(tmp_path / "reviews.npz"), bundle).x.shape == x.shape
    command = ["score", str(place / "run"), str(tmp_path / "reviews.npz"), "--client", "Insel"]
    assert main(command) == 0


def dated(place, name, texts, clients="xyz"):
    """A table of dates, a number, two classes, its clients by turns."""
    lines = [
        f"{text},{i % 5},{'ab'[i % 2]},{clients[i % len(clients)]}" for i, text in enumerate(texts)
    ]
    (place / name).write_text("\n".join(["seen,n,label,client", *lines]))
    return str(place / name)


BOTH = [f"{m:02d}/{d:02d}/2024" for m in range(1, 13) for d in range(1, 13) if m != d] * 2


@pytest.fixture(scope="module")
def iso(tmp_path_factory):
    """A model trained on dates with the year first, and a table with months first, days ≤ 12."""
    place = tmp_path_factory.mktemp("iso")
    days = [f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(240)]
    fedpn.run(place / "run", dataset=dated(place, "t.csv", days), **FAST)
    dated(place, "new.csv", BOTH)
    return place


@pytest.mark.parametrize("door", ["predict", "score", "frame", "dict", "http", "join", "update"])
def test_dates_that_nothing_settles_are_refused_at_each_door(iso, door, tmp_path, capsys):
    bundle = fedpn.load(iso / "run", "x").bundle
    about, new = bundle.about, iso / "new.csv"
    if door in ("predict", "score"):
        assert main([door, str(iso / "run"), str(new), "--client", "x"]) == 2
        said = capsys.readouterr().err
    else:
        rows = [{"seen": "01/02/2024", "n": 1}]
        form = (about.blueprint.shape, about.features, about.recipe)
        with pytest.raises(UserError) as refused:
            {
                "frame": lambda: as_array(pandas.DataFrame(rows), bundle),
                "dict": lambda: as_array(rows, bundle),
                "http": lambda: decode(rows, *form),
                "join": lambda: join(iso / "run", str(new), "w", tmp_path / "o"),
                "update": lambda: update(iso / "run", str(new), "x", tmp_path / "o"),
            }[door]()
        said = str(refused.value)
    assert "'01/02/2024' in the column 'seen' is 2024-02-01 or 2024-01-02" in said
    assert "nothing tells which" in said and "write dates as 2024-12-31" in said
    assert not (tmp_path / "o").exists()


def test_dates_that_nothing_settles_are_told_before_a_run(iso, tmp_path, capsys):
    told = "'seen' of x, y, z: '01/02/2024' is 2024-02-01 or 2024-01-02, and nothing tells: the day"
    assert main(["data", "check", str(iso / "new.csv")]) == 0
    assert told in capsys.readouterr().out
    config = resolve([{"dataset": str(iso / "new.csv"), "algorithm": "analytic"}])
    assert any(remark.startswith(told) for remark in prepare(config).dataset.remarks)
    share = open_share({"data": str(iso / "new.csv"), "name": "w"}, config, tmp_path)
    assert any("and nothing tells" in remark for remark in share.dataset.remarks)


def test_each_client_writes_dates_in_its_own_way(tmp_path):
    """One hospital has the month first, the others the day: each file is read as its own are."""
    days = [np.datetime64("2024-01-01") + i for i in range(300)]
    ways = {"x": "%d/%m/%Y", "y": "%m/%d/%Y", "z": "%d/%m/%Y"}
    texts = [day.item().strftime(ways["xyz"[i % 3]]) for i, day in enumerate(days)]
    run = tmp_path / "run"
    fedpn.run(run, dataset=dated(tmp_path, "t.csv", texts), **FAST)
    learned = prepare(resolve([stored(run)])).dataset
    found = learned.x[:, learned.features.index("seen")]
    np.testing.assert_array_equal(found, [day.astype(int) for day in days])
    export(run, "y", tmp_path / "y")
    kept = read_json(tmp_path / "y" / "bundle.json")["recipe"]["columns"][0]
    assert (kept["day_first"], kept["clients"]) == ("no", [])
    for place, client, day in (
        (run, "x", "02-01"),
        (run, "y", "01-02"),
        (tmp_path / "y", "y", "01-02"),
    ):
        bundle = fedpn.load(place, client).bundle
        row = as_array([{"seen": "01/02/2024", "n": 1}], bundle)[0]
        assert row[0] == np.datetime64(f"2024-{day}").astype(int)
    assert Library([run]).known("y")[0].recipe.columns[0].day_first == "no"
