"""Answers over HTTP are the library's own; what cannot be answered is told in a sentence."""

import base64
import shutil

import numpy as np
import pytest
from starlette.testclient import TestClient

import dicoms
import fedpn
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.service.app import make_app
from fedpn.service.counters import Counters
from fedpn.service.decisions import Decisions
from fedpn.service.decode import decode, to_png
from fedpn.service.drift import drift
from fedpn.service.library import Library
from fedpn.service.limits import Limits
from fedpn.service.worker import Busy, Job, Worker
from fedpn.serving.bundle import open_bundle
from fedpn.serving.export import export


def ask(service, **question):
    return service.post("/v1/predict", json=question)


def test_answers_are_the_librarys(service, pictures, digits):
    rows = digits.x[:40]
    told = ask(service, client="1", inputs=rows[:, 0].tolist(), own_share=0.5).json()["answers"]
    expected = fedpn.load(pictures, "1")(rows, own_share=0.5)
    for answer, mine in zip(told, expected, strict=True):
        assert (answer["label"], answer["source"]) == (mine.label, mine.source)
        assert answer["reason"] == mine.reason
        assert answer["confidence"] == pytest.approx(mine.confidence, abs=1e-5)
        assert answer["measured_on"] == mine.measured_on


def test_pictures_come_as_numbers_base64_or_files_and_are_answered_alike(service, digits):
    pixels = digits.x[7]
    png = to_png(pixels)
    forms = [pixels[0].tolist(), base64.b64encode(png).decode()]
    forms.append("data:image/png;base64," + forms[1])
    told = ask(service, client="0", inputs=forms, own_share=0.5).json()["answers"]
    files = [("files", ("a.png", png, "image/png"))]
    sent = service.post("/v1/predict", data={"client": "0", "explain": "true"}, files=files)
    assert len({answer["guess"] for answer in told} | {sent.json()["answers"][0]["guess"]}) == 1
    assert set(sent.json()["answers"][0]["explanation"]) >= {"local", "global", "prior", "limits"}
    for other in told[1:]:
        assert other["probabilities"] == pytest.approx(told[0]["probabilities"], abs=1e-5)


def test_scans_are_answered_as_the_same_picture_in_bytes_is(service, pictures, digits):
    pixels = digits.x[7]
    window = {"WindowCenter": 2040, "WindowWidth": 4080, "VOILUTFunction": "LINEAR_EXACT"}
    scan = dicoms.file(pixels[0].astype(np.uint16) * 16, **window)
    text = base64.b64encode(scan).decode()
    forms = [pixels[0].tolist(), text, f"data:application/dicom;base64,{text}"]
    told = ask(service, client="0", inputs=forms, own_share=0.5).json()["answers"]
    files = [("files", ("scan", scan, "application/dicom"))]
    told += service.post("/v1/predict", data={"client": "0"}, files=files).json()["answers"]
    mine = fedpn.load(pictures, "0")([scan], own_share=0.5)[0]
    for answer in told[:3]:
        assert answer["probabilities"] == pytest.approx(mine.probabilities, abs=1e-5)
    assert told[3]["guess"] == mine.guess
    refused = ask(service, client="0", inputs=[base64.b64encode(scan[:-100]).decode()])
    assert (refused.status_code, "damaged DICOM" in refused.text) == (400, True)


def test_rows_of_a_table_go_by_name_or_in_order(table):
    with TestClient(make_app(Library([table])), base_url="http://localhost") as service:
        row = {"heat": 1.0, "age": 2.0, "pulse": 0.5}
        told = ask(service, client="Oslo", inputs=[row, [2.0, 0.5, 1.0]], own_share=0.5).json()
        first, second = told["answers"]
        assert first["probabilities"] == pytest.approx(second["probabilities"], abs=1e-6)
        assert (
            ask(service, client="Oslo", inputs=[{"age": 1}])
            .json()["error"]
            .startswith("input 0 lacks pulse, heat")
        )
        extra = ask(service, client="Oslo", inputs=[row | {"sex": 1}])
        assert "has no use for 'sex'" in extra.json()["error"]
        huge = ask(service, client="Oslo", inputs=[[3e38, 0, 0], [1e300, 0, 0]], own_share=0.5)
        assert [a["source"] for a in huge.json()["answers"]] == ["nobody", "nobody"]
        # An input that breaks a model down says nothing of those that came with it.
        told = ask(service, client="Oslo", inputs=[[1e300, 0, 0], [2.0, 0.5, 1.0]]).json()
        assert np.isfinite(told["answers"][1]["own_share"])
        assert "no finite numbers" not in told["answers"][1]["reason"]


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ({"client": "9", "inputs": [[1]]}, 404, "no such client"),
        ({"inputs": [[1]]}, 400, "say which client: 0, 1, 2"),
        ({"client": "0", "inputs": [[1, 2]]}, 400, "input 0 has the shape (2,)"),
        ({"client": "0", "inputs": ["no picture"]}, 400, "no picture as base64"),
        ({"client": "0", "inputs": ["AAAA"]}, 400, "not a picture that can be read"),
        ({"client": "0", "inputs": [[["a"]]]}, 400, "not a list of numbers"),
        ({"client": "0", "inputs": [[[300.0] * 28] * 28]}, 400, "from 0 to 255"),
        ({"client": "0", "inputs": [{"age": 1}]}, 400, "names columns, and this model has none"),
        ({"client": "0"}, 422, "inputs: Field required"),
        ({"client": "0", "inputs": [], "own_share": 2}, 422, "own_share"),
        ({"client": "0", "inputs": [], "path": "/etc"}, 422, "path"),
    ],
)
def test_mistakes_are_told_in_a_sentence(service, question, status, words):
    answer = ask(service, **question)
    assert answer.status_code == status and words in answer.json()["error"]


def test_nothing_asked_nothing_told(service):
    told = ask(service, client="0", inputs=[]).json()
    assert (told["client"], told["answers"], told["remarks"]) == ("0", [], [])


def test_the_stream_teaches_the_share_of_own_inputs(service, pictures, digits):
    counts = open_bundle(pictures, "0").standards.counts.numpy()
    own = np.flatnonzero(counts[digits.y] > 0)[:120]
    foreign = np.flatnonzero(counts[digits.y] == 0)[:400]
    for rows, low, high in ((own, 0.85, 1.0), (foreign, 0.0, 0.15)):
        for part in np.array_split(rows, len(rows) // 20):
            told = ask(service, client="0", inputs=digits.x[part, 0].tolist()).json()["answers"]
        assert low <= told[-1]["own_share"] <= high


def test_decisions_are_kept_reviewed_and_written_for_the_next_calibration(
    service, pictures, digits, tmp_path, capsys
):
    noise = np.random.default_rng(0).integers(0, 256, (3, 28, 28))
    told = ask(service, client="2", inputs=[digits.x[0, 0].tolist(), *noise.tolist()]).json()
    last = service.get("/v1/decisions", params={"client": "2"}).json()
    assert [row["id"] for row in last] == [a["id"] for a in told["answers"]][::-1]
    waiting = service.get("/v1/reviews", params={"client": "2"}).json()
    assert {row["outcome"] for row in waiting} == {"stranger"} and len(waiting) == 3
    number = waiting[0]["id"]
    shown = service.get(f"/v1/decisions/{number}/input").json()
    assert base64.b64decode(shown["picture"]) == to_png(noise[:1].astype(np.uint8))
    assert service.get("/v1/decisions/99999/input").status_code == 404
    assert service.post(f"/v1/reviews/{number}", json={"label": "cat"}).status_code == 400
    assert service.post("/v1/reviews/99999", json={"label": "7"}).status_code == 404
    assert service.post(f"/v1/reviews/{number}", json={"label": "7"}).json() == {"done": True}
    assert len(service.get("/v1/reviews", params={"client": "2"}).json()) == 2
    from fedpn.cli.main import main

    database, out = str(tmp_path / "decisions.db"), str(tmp_path / "rows.npz")
    command = ["reviews", str(pictures), "--client", "2", "--decisions", database, "--out", out]
    assert main(command) == 0 and "1 labelled inputs" in capsys.readouterr().out
    with np.load(out) as file:
        assert file["labels"].tolist() == ["7"]
        assert np.array_equal(file["images"][0, 0], noise[0])
    assert main([*command[:3], "0", *command[4:]]) == 2  # nobody labelled any of client 0


def test_drift_is_seen_on_the_page_and_in_the_metrics(service, pictures):
    noise = np.random.default_rng(0).integers(0, 256, (60, 28, 28)).tolist()
    ask(service, client="1", inputs=noise)
    found = service.get("/v1/drift", params={"client": "1"}).json()
    assert found["strangers"]["share"] > 0.9 and "strangers" in found["alerts"][0]
    text = service.get("/metrics").text
    assert 'fedpn_drift_alert{client="1"} 1' in text
    assert 'fedpn_answers_total{client="1",source="nobody",outcome="stranger"}' in text
    calm = [
        {"outcome": "local_confident", "source": "local", "own_share": 0.5, "time": 0.0}
        | {"epistemic": 0.0}
    ] * 90
    assert drift(calm, open_bundle(pictures, "1"))["alerts"] == []


def test_tokens_hosts_and_origins_are_checked(pictures, digits):
    app = make_app(Library([pictures]), token="a long secret of one's own")
    with TestClient(app, base_url="http://example.org") as service:
        assert service.get("/healthz").status_code == 200 and service.get("/").status_code == 200
        for head in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
            assert service.get("/v1/clients", headers=head).status_code == 401
        good = {"Authorization": "Bearer a long secret of one's own"}
        assert service.get("/v1/clients", headers=good).status_code == 200
        for origin in ("http://evil.example", "null", ""):
            elsewhere = good | {"Origin": origin}
            assert service.get("/v1/clients", headers=elsewhere).status_code == 403
        here = good | {"Origin": "http://example.org"}
        assert service.get("/v1/clients", headers=here).status_code == 200
    with TestClient(make_app(Library([pictures])), base_url="http://evil.example") as service:
        assert service.get("/v1/clients").status_code == 403  # another name of this machine


def test_large_requests_are_refused(pictures):
    app = make_app(Library([pictures]), limits=Limits(body=2000, rows=3))
    with TestClient(app, base_url="http://127.0.0.1") as service:
        assert ask(service, client="0", inputs=[[0] * 28] * 200).status_code == 413
        assert ask(service, client="0", inputs=[1, 2, 3, 4]).status_code == 413

        def parts():
            yield b'{"inputs": ['
            for _ in range(100):
                yield b"1," * 100

        assert service.post("/v1/predict", content=parts()).status_code == 413
        assert service.get("/healthz").status_code == 200


def test_callers_are_answered_together_and_each_gets_its_own(pictures, digits):
    counters = Counters()
    models = Library([pictures])["0"]
    worker = Worker(Limits(linger=3.0), counters)  # on any machine
    waiting = [worker.submit(Job(models, digits.x[i : i + 1], 0.5)) for i in range(24)]
    found = [future.result(60) for future in waiting]
    worker.close()
    expected = fedpn.load(pictures, "0")(digits.x[:24], own_share=0.5)
    assert [found[i][0]["guess"] for i in range(24)] == [a.guess for a in expected]
    assert counters.rows == 24 and counters.batches < 12, "they went together"


def test_a_full_queue_says_so_and_what_was_taken_is_answered(pictures, digits):
    models, worker = Library([pictures])["0"], Worker(Limits(waiting=5), Counters())
    taken = worker.submit(Job(models, digits.x[:5], None))
    with pytest.raises(Busy):
        worker.submit(Job(models, digits.x[:1], None))
    assert len(taken.result(60)) == 5
    last = worker.submit(Job(models, digits.x[:2], None))
    worker.close()
    assert len(last.result(0)) == 2, "closing answers what was taken"
    with pytest.raises(Busy):
        worker.submit(Job(models, digits.x[:1], None))


def test_who_gives_up_waiting_does_not_harm_the_others(pictures, digits):
    models, worker = Library([pictures])["0"], Worker(Limits(linger=0.3), Counters())
    worker.had_company = True  # so that it lingers
    first, second = (worker.submit(Job(models, digits.x[:2], 0.5)) for _ in range(2))
    assert first.cancel()
    assert len(second.result(60)) == 2
    worker.close()
    assert worker.waiting == 0


def test_one_bad_batch_does_not_end_the_worker(pictures, digits):
    models, worker = Library([pictures])["0"], Worker(Limits(), Counters())
    with pytest.raises(Exception, match=r"channels|shape|size|expected"):
        worker.submit(Job(models, np.zeros((1, 3, 5, 5), np.uint8), None)).result(60)
    assert len(worker.submit(Job(models, digits.x[:1], None)).result(60)) == 1
    worker.close()


def test_new_models_swap_in_and_the_old_are_one_call_away(pictures, digits, tmp_path):
    place = tmp_path / "bundle"
    export(pictures, "1", place)
    library = Library([place])
    before = library["1"].predictor
    assert library.refresh() == [] and not library.roll_back("1")
    export(pictures, "1", tmp_path / "next")
    tree = store.read_json(tmp_path / "next" / "bundle.json")
    tree["provenance"]["note"] = "trained again"
    store.write_json(tmp_path / "next" / "bundle.json", tree)
    store.seal(tmp_path / "next")
    for file in (tmp_path / "next").iterdir():
        shutil.copyfile(file, place / file.name)
    assert library.refresh() == ["1"]
    after = library["1"].predictor
    assert after is not before and library["1"].before is before
    assert library.roll_back("1") and library["1"].predictor is before
    assert library.roll_back("1") and library["1"].predictor is after
    (place / "rules.safetensors").write_bytes(b"damaged")
    sums = store.read_json(place / "manifest.json")
    store.write_json(place / "manifest.json", sums | {"rules.safetensors": "of others"})
    assert library.refresh() == [] and "could not be read" in library.problem
    assert library["1"].predictor is after, "what cannot be read is not served"


def test_one_client_in_two_folders_is_refused(pictures):
    with pytest.raises(UserError, match="client 0 is in several"):
        Library([pictures, pictures])


def test_samples_and_the_card_are_there(service, table):
    kinds = [s["kind"] for s in service.get("/v1/samples", params={"client": "0"}).json()]
    assert any(kind.startswith("strange") for kind in kinds)
    text = service.get("/v1/card", params={"client": "0"}).json()["text"]
    assert "# Model card: client 0" in text and "refused by a gate" in text
    with TestClient(make_app(Library([table])), base_url="http://localhost") as other:
        rows = other.get("/v1/samples", params={"client": "Oslo"}).json()
        assert len(rows[0]["row"]) == 3
        assert other.get("/v1/decisions").status_code == 404
        assert other.get("/readyz").json() == {"done": True}


def test_decoding_keeps_to_the_shape():
    grey = decode([[[0, 255], [10, 20]]], (1, 2, 2), ()).rows
    assert grey.dtype == np.uint8 and grey.tolist() == [[[[0, 255], [10, 20]]]]
    colour = decode([np.zeros((2, 2, 3)).tolist()], (3, 2, 2), ()).rows
    assert colour.shape == (1, 3, 2, 2)
    assert decode([[1, 2]], (2,), ()).rows.dtype == np.float32


def test_a_database_keeps_order_and_numbers(tmp_path):
    decisions = Decisions(f"sqlite:///{tmp_path / 'a.db'}")
    row = {
        "time": 0.0, "client": "a", "version": "v", "outcome": "stranger", "source": "nobody",
        "label": None, "guess": "x", "confidence": 0.1, "epistemic": 0.0, "aleatoric": 0.0,
        "total": 0.0, "own_share": None, "reason": "", "input": None,
    }  # fmt: skip
    assert decisions.keep([row] * 3) == [1, 2, 3] and decisions.keep([]) == []
    assert [r["id"] for r in decisions.last("a", 2)] == [3, 2]
    assert decisions.find(2)["client"] == "a" and decisions.find(9) is None
    decisions.close()


PATIENT = {
    "Alter": 61,
    "CRP": "12,5",
    "Blutdruck": None,
    "Station": "Innere",
    "Raucher": True,
    "Aufnahme": "2023-04-03",
    "Dosis": 2,
    "Kosten": "1.234,50",
}


def test_columns_of_all_kinds_go_as_they_are_written(clinic, tmp_path):
    decisions = Decisions(f"sqlite:///{tmp_path / 'd.db'}")
    app = make_app(Library([clinic]), decisions=decisions, keep_inputs=True)
    with TestClient(app, base_url="http://127.0.0.1") as service:
        (about, *_) = service.get("/v1/clients").json()
        assert about["features"] == list(PATIENT)
        kinds = {column["name"]: column["kind"] for column in about["columns"]}
        assert (kinds["Station"], kinds["Raucher"], kinds["Aufnahme"]) == (
            "category",
            "boolean",
            "date",
        )
        assert "Innere" in about["columns"][3]["values"]

        def ask(*inputs):
            body = {"client": "Insel", "inputs": list(inputs), "own_share": 0.5}
            return service.post("/v1/predict", json=body)

        written = [{"CRP": 12.5, "Raucher": "ja", "Aufnahme": "03.04.2023", "Kosten": 1234.5}]
        same = ask(PATIENT, PATIENT | written[0], list(PATIENT.values())).json()["answers"]
        probabilities = [answer["probabilities"] for answer in same]
        assert probabilities[0] == probabilities[1] == probabilities[2]
        local = fedpn.load(clinic, client="Insel")([PATIENT], own_share=0.5)[0].probabilities
        assert probabilities[0] == pytest.approx(local, abs=1e-5)
        for bad, words in (
            ({"Alter": 61}, "input 0 lacks CRP, Blutdruck"),
            (PATIENT | {"Zimmer": 3}, "has no use for 'Zimmer'"),
            (PATIENT | {"Alter": [61]}, "input 0 has a list or an object in 'Alter'"),
            ([61], "input 0 is no row of 8 values"),
            ("61", "input 0 is no row of 8 values"),
        ):
            told = ask(bad)
            assert told.status_code == 400 and words in told.json()["error"]
        kept = service.get(f"/v1/decisions/{same[0]['id']}/input").json()["row"]
        assert kept == list(PATIENT.values()), "as it was asked about"
        usual, strange = service.get("/v1/samples", params={"client": "Insel"}).json()
        assert ask(usual["row"]).json()["answers"][0]["label"] in ("gesund", "krank")
        assert ask(strange["row"]).json()["answers"][0]["outcome"] == "stranger"
