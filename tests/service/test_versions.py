"""A request is answered by one version of the models, from its arrival to its decision."""

import csv
import shutil
import sqlite3
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient
from swaps import COLUMNS, LABELS, question, swap

import fedpn
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.service import state
from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.decode import decode
from fedpn.service.library import Library
from fedpn.serving.bundle import open_bundle, version_of
from fedpn.serving.export import export
from fedpn.serving.labelled import read_labelled

TWO = COLUMNS["first"]


@pytest.fixture
def live(folders, tmp_path):
    """The folder that is served; at first it holds the first models."""
    return shutil.copytree(folders["first"], tmp_path / "live")


@pytest.fixture
def service(live, tmp_path):
    decisions = Decisions(f"sqlite:///{tmp_path / 'd.db'}")
    app = make_app(Library([live]), decisions=decisions, keep_inputs=True)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def library(service):
    return service.app.state.service.library


def ask(service, columns=TWO, **more):
    return service.post("/v1/predict", json=question(columns, **more))


def labels(response):
    assert response.status_code == 200, response.text
    return [answer["label"] for answer in response.json()["answers"]]


@pytest.mark.parametrize("other", ["turned", "wide"])
def test_models_that_come_between_reading_and_answering_wait(
    service, live, folders, monkeypatch, other
):
    def slowly(*arguments, **options):
        found = decode(*arguments, **options)
        swap(folders[other], live)
        library(service).refresh()
        return found

    monkeypatch.setattr(state, "decode", slowly)
    told = ask(service, explain=True)
    assert labels(told) == LABELS
    assert told.json()["version"] == version_of(folders["first"])
    (kept, *_) = service.get("/v1/decisions").json()
    assert kept["version"] == version_of(folders["first"])
    monkeypatch.undo()
    told = ask(service, COLUMNS[other])
    assert labels(told) == LABELS and told.json()["version"] == version_of(folders[other])


@pytest.mark.parametrize("other", ["turned", "wide"])
def test_under_load_every_answer_is_one_of_one_versions(service, live, folders, other):
    expected = {
        version_of(folders[name]): fedpn.load(folders[name], "Oslo")(
            question(COLUMNS[name])["inputs"], own_share=0.5
        )
        for name in ("first", other)
    }
    stop, seen, wrong = threading.Event(), [], []

    def call():
        while not stop.is_set():
            told = ask(service, COLUMNS["wide"] if "age" in features() else TWO)
            if told.status_code == 400:  # of the models that take other columns
                assert "columns are" in told.text, told.text
                continue
            tree = told.json()
            seen.append(tree.get("version"))
            mine = expected.get(tree.get("version"), [])
            pairs = zip(tree["answers"], mine, strict=False)
            same = all(
                a["label"] == b.label and abs(a["confidence"] - b.confidence) < 1e-4
                for a, b in pairs
            )
            if len(mine) < 2 or not same:
                wrong.append(tree)

    def features():
        return library(service).open["Oslo"].predictor.bundle.features

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    rng = np.random.default_rng(0)
    for _ in range(1000):  # enough swaps on any machine
        if len(seen) >= 120 and len(set(seen)) > 1:
            break
        swap(folders[str(rng.choice(["first", other]))], live, rng)
        library(service).refresh()
    stop.set()
    for caller in callers:
        caller.join()
    assert not wrong, wrong[:2]
    assert set(seen) == set(expected)


def test_who_asks_for_a_version_is_answered_by_no_other(service, live, folders):
    first = version_of(folders["first"])
    rows = [[2.0, -2.0], [-2.0, 2.0]]  # in order, of which a model cannot know what they are
    body = {"client": "Oslo", "inputs": rows, "own_share": 0.5, "version": first}
    assert labels(service.post("/v1/predict", json=body)) == LABELS
    swap(folders["turned"], live)
    library(service).refresh()
    refused = service.post("/v1/predict", json=body)
    assert refused.status_code == 409
    assert first in refused.json()["error"] and version_of(live) in refused.json()["error"]


def test_all_routes_speak_of_the_version(service, live, folders):
    first, turned = (version_of(folders[name]) for name in ("first", "turned"))
    ask(service)
    for _ in range(20):
        ask(service)

    def told():
        client = {"client": "Oslo"}
        (about,) = service.get("/v1/clients").json()
        card = service.get("/v1/card", params=client).json()
        assert f"**Version**: {card['version']}" in card["text"]
        drift = service.get("/v1/drift", params=client).json()
        models = service.get("/v1/info").json()["models"]
        assert about["version"] == card["version"] == drift["version"] == models["Oslo"]
        return about["version"], about["before"], drift["rows"]

    assert told() == (first, None, 42)
    swap(folders["turned"], live)
    library(service).refresh()
    # What other models decided says nothing of how these do.
    assert told() == (turned, first, 0)
    back = service.post("/v1/rollback", params={"client": "Oslo"})
    assert back.json() == {"done": True, "version": first}
    assert told() == (first, turned, 42)
    assert library(service).refresh() == [], "what is on disk was taken in once"


def test_two_who_roll_back_at_once_roll_back_once(service, live, folders):
    first, turned = (version_of(folders[name]) for name in ("first", "turned"))
    swap(folders["turned"], live)
    library(service).refresh()
    for _ in range(2):
        back = service.post("/v1/rollback", params={"client": "Oslo", "version": first})
        assert back.json() == {"done": True, "version": first}
    gone = service.post("/v1/rollback", params={"client": "Oslo", "version": "0123"})
    assert gone.status_code == 409 and gone.json()["error"].startswith(first)
    there = service.post("/v1/rollback", params={"client": "Oslo", "version": turned})
    assert there.json()["version"] == turned


def review(service, count=2, label=None):
    numbers = [row["id"] for row in service.get("/v1/decisions").json()][:count][::-1]
    for number, name in zip(numbers, [label] * count if label else LABELS, strict=True):
        said = service.post(f"/v1/reviews/{number}", json={"label": name})
        assert said.status_code == 200, said.text
    return numbers


def reviews(folder, tmp_path, out="rows.npz"):
    command = ["reviews", str(folder), "--decisions", str(tmp_path / "d.db")]
    return main([*command, "--out", str(tmp_path / out)])


def test_the_second_who_reviews_a_decision_is_refused(service):
    ask(service)
    number, _ = review(service)
    late = service.post(f"/v1/reviews/{number}", json={"label": LABELS[1]})
    assert late.status_code == 409 and "'heavy'" in late.json()["error"]
    (_, kept) = service.get("/v1/decisions").json()
    assert kept["truth"] == LABELS[0], "the first label stays"
    for correction, status in (("salty", 409), ("heavy", 200)):  # who corrects says what
        body = {"label": LABELS[1], "instead": correction}
        assert service.post(f"/v1/reviews/{number}", json=body).status_code == status


def test_reviews_at_once_leave_one_label(tmp_path, service):
    ask(service)
    numbers = [row["id"] for row in service.get("/v1/decisions").json()]
    kept = Decisions(f"sqlite:///{tmp_path / 'd.db'}")
    done = []
    people = [
        threading.Thread(target=lambda: done.append(kept.review(numbers[0], LABELS[0])))
        for _ in range(6)
    ]
    for person in people:
        person.start()
    for person in people:
        person.join()
    kept.close()
    assert sorted(done) == [False] * 5 + [True]


def test_reviewed_inputs_go_by_the_names_of_their_columns(service, live, folders, tmp_path, capsys):
    ask(service)
    review(service)
    for name in ("first", "turned"):
        assert reviews(folders[name], tmp_path, f"{name}.npz") == 0
        with np.load(tmp_path / f"{name}.npz") as file:
            assert file["columns"].tolist() == list(COLUMNS[name])
            place = COLUMNS[name].index("weight")
            assert file["x"][:, place].tolist() == [2.0, -2.0]
            assert file["labels"].tolist() == LABELS
    assert "2 of these inputs are for other versions" in capsys.readouterr().err
    # Models that need what was not asked: nothing is written.
    assert reviews(folders["wide"], tmp_path, "wide.npz") == 2
    assert "input 1 lacks age" in capsys.readouterr().err
    assert not (tmp_path / "wide.npz").exists()
    swap(folders["wide"], live)
    library(service).refresh()
    ask(service, COLUMNS["wide"])
    review(service)
    assert reviews(folders["wide"], tmp_path, "wide.npz") == 0
    assert "2 labelled inputs of client Oslo" in capsys.readouterr().out
    # What models have no use for is left away.
    assert reviews(folders["first"], tmp_path, "all.npz") == 0
    with np.load(tmp_path / "all.npz") as file:
        assert file["x"].tolist() == [[2.0, -2.0], [-2.0, 2.0]] * 2


def test_reviewed_rows_for_one_model_are_put_in_order_for_another(service, folders, tmp_path):
    ask(service)
    review(service)
    assert reviews(folders["first"], tmp_path) == 0
    turned, wide = (open_bundle(folders[name]) for name in ("turned", "wide"))
    found = read_labelled(str(tmp_path / "rows.npz"), turned)
    assert found.x.tolist() == [[-2.0, 2.0], [2.0, -2.0]]
    with pytest.raises(UserError, match="rows of the shape"):
        read_labelled(str(tmp_path / "rows.npz"), wide)
    np.savez(tmp_path / "odd.npz", x=found.x, labels=LABELS, columns=["weight", "potassium"])
    with pytest.raises(UserError, match="other columns than the model takes"):
        read_labelled(str(tmp_path / "odd.npz"), turned)
    command = ["predict", str(folders["turned"]), str(tmp_path / "rows.npz"), "--own-share", "0.5"]
    assert main([*command, "--out", str(tmp_path / "answers.csv")]) == 0
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == LABELS


def test_a_reviewed_row_that_is_no_number_is_left_out(service, folders, tmp_path, capsys):
    ask(service)
    review(service)
    service.post("/v1/predict", json={"client": "Oslo", "inputs": [[1e300, 0.0]]})
    numbers = review(service, 1, LABELS[0])
    assert reviews(folders["first"], tmp_path) == 0
    assert f"input {numbers[0]}: 'weight' is 1e+300" in capsys.readouterr().err
    found = read_labelled(str(tmp_path / "rows.npz"), open_bundle(folders["first"]))
    assert found.x.tolist() == [[2.0, -2.0], [-2.0, 2.0]]


def test_decisions_of_an_older_fedpn_are_taken_over(tmp_path, folders, pictures, capsys):
    """They have no version, and of their inputs nobody knows which column is which."""
    columns = (
        "id INTEGER PRIMARY KEY, time FLOAT NOT NULL, client VARCHAR NOT NULL, outcome VARCHAR "
        "NOT NULL, source VARCHAR NOT NULL, label VARCHAR, guess VARCHAR NOT NULL, confidence "
        "FLOAT NOT NULL, epistemic FLOAT NOT NULL, aleatoric FLOAT NOT NULL, total FLOAT NOT NULL, "
        "own_share FLOAT, reason VARCHAR NOT NULL, input BLOB, truth VARCHAR, reviewed FLOAT"
    )
    row = (1.0, "stranger", "nobody", None, "heavy", 0.5, 0.0, 0.0, 0.0, None, "")
    inputs = {"Oslo": (np.zeros(2, np.float32), "heavy"), "0": (np.ones((1, 28, 28), "u1"), "7")}
    with sqlite3.connect(tmp_path / "d.db") as database:
        database.execute(f"CREATE TABLE decisions ({columns})")
        for number, (client, (x, truth)) in enumerate(inputs.items(), 1):
            values = (number, row[0], client, *row[1:], x.tobytes(), truth, 2.0)
            marks = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO decisions VALUES ({marks})", values)
    database.close()
    kept = Decisions(f"sqlite:///{tmp_path / 'd.db'}")
    assert [old["version"] for old in kept.last(None, 5)] == [None, None]
    kept.close()
    Decisions(f"sqlite:///{tmp_path / 'd.db'}").close()  # and once more
    assert reviews(folders["first"], tmp_path) == 2
    assert "was kept by an older fedpn, without names of columns" in capsys.readouterr().err
    command = ["reviews", str(pictures), "--client", "0", "--decisions", str(tmp_path / "d.db")]
    assert main([*command, "--out", str(tmp_path / "p.npz")]) == 0
    with np.load(tmp_path / "p.npz") as file:
        assert file["images"].tolist() == np.ones((1, 1, 28, 28)).tolist()


def test_models_are_never_read_of_two_versions(live, folders, monkeypatch):
    """They are replaced after each of their files in turn, while they are opened."""
    read, files = store.read_tensors, len(list(live.glob("*.safetensors")))
    for moment in range(files):
        swap(folders["first"], live)
        calls = []

        def replaced(path, prefix="", moment=moment, calls=calls):
            found = read(path, prefix)
            calls.append(path)
            if len(calls) == moment + 1:
                swap(folders["turned"], live)
            return found

        monkeypatch.setattr(store, "read_tensors", replaced)
        with pytest.raises(UserError, match=r"replaced while|damaged or was changed"):
            open_bundle(live)
        monkeypatch.undo()
        assert calls


def test_a_client_that_was_opened_beside_a_refresh_gets_the_new_models(live, folders):
    mine = Library([live])
    late = mine.open.pop("Oslo")  # opened from the old files, but not in the list yet
    swap(folders["turned"], live)
    mine.refresh()
    mine.open["Oslo"] = late
    assert mine.refresh() == ["Oslo"]
    assert mine["Oslo"].version == version_of(folders["turned"])


def test_models_of_a_client_that_is_served_elsewhere_are_not_taken_in(live, folders, tmp_path):
    run = folders["first"].with_name("run-first")
    export(run, "Bergen", tmp_path / "other")
    both = Library([live, tmp_path / "other"])
    swap(run, tmp_path / "other")  # of both clients
    assert both.refresh() == [] and "could not be read" in both.problem
    assert both.clients == ["Oslo", "Bergen"]


def test_what_is_beside_the_models_is_told_of_its_own_version_alone(live, folders):
    models = Library([live])["Oslo"]
    assert models.beside(lambda folder: folder.name, "") == "live"
    swap(folders["turned"], live)
    assert models.beside(lambda folder: folder.name, "") == ""
    swap(folders["first"], live)
    assert models.beside(lambda folder: swap(folders["turned"], folder), "changed") == "changed"


def test_a_cell_that_cannot_be_read_is_named(service, live):
    def reasons(*inputs):
        told = service.post("/v1/predict", json={"client": "Oslo", "inputs": list(inputs)})
        return [answer["reason"] for answer in told.json()["answers"]]

    row = {"weight": 1.0, "sodium": 1.0}
    assert reasons(row | {"sodium": 1e300}, row | {"weight": None}, row | {"sodium": "inf"}) == [
        "'sodium' is 1e+300, which is no number that 32 bits hold: nobody can answer",
        "'weight' is null, which is no number: nobody can answer",
        "'sodium' is 'inf', which is no number: nobody can answer",
    ]
    for value, words in (("n.n.", "'n.n.'"), (10**400, "1000"), ([1], "a list or an object")):
        body = {"client": "Oslo", "inputs": [row, row | {"sodium": value}]}
        told = service.post("/v1/predict", json=body)
        assert told.status_code == 400
        assert told.json()["error"].startswith("input 1 has ")
        assert words in told.json()["error"] and "'sodium'" in told.json()["error"]


def test_a_cell_of_another_kind_is_named(clinic):
    row = {"Alter": 61, "CRP": 5, "Blutdruck": 120, "Station": "Innere", "Raucher": True}
    row |= {"Aufnahme": "2023-04-03", "Dosis": 2, "Kosten": 100}
    with TestClient(make_app(Library([clinic])), base_url="http://localhost") as service:

        def tell(**cells):
            body = {"client": "Insel", "inputs": [row, row | cells], "own_share": 0.5}
            return service.post("/v1/predict", json=body).json()

        told = tell(Dosis="zwei")  # a column that never had a gap
        assert [a["reason"] for a in told["answers"]][1] == (
            "'Dosis' is 'zwei', which is no number: nobody can answer"
        )
        assert "such as 'zwei'" in told["remarks"][0]
        assert "make their rows strangers" in told["remarks"][0]
        told = tell(Aufnahme="bald")
        assert "'Aufnahme' is 'bald', which is no date" in told["answers"][1]["reason"]
        told = tell(CRP="hoch")  # a column that had: it counts as missing, and that is told
        assert told["answers"][1]["outcome"] != "stranger"
        assert "'CRP'" in told["remarks"][0] and "count as missing" in told["remarks"][0]
        assert tell()["remarks"] == []
