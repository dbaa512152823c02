"""Alarms of drift are rare where nothing drifts, come where something does, and outlive a restart;
strangers move no client's share of own inputs."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import fedpn
from fedpn.routing.outcomes import Outcome
from fedpn.routing.standards import of_state, usual
from fedpn.service.app import make_app
from fedpn.service.decisions import Decisions
from fedpn.service.drift import CHANCES, Seen, Watch
from fedpn.service.evidence import Evidence, upper_bound
from fedpn.service.library import Library
from fedpn.serving.bundle import open_bundle
from fedpn.serving.labelled import Rows, score
from fedpn.serving.stream import answer_parts

KINDS = (Outcome.STRANGER, Outcome.LOCAL_AMBIGUOUS, Outcome.LOCAL_OOD, Outcome.LOCAL_CONFIDENT)


def watch(counts):
    """Of calibration rows, so many of each kind; inputs look foreign above 0."""
    seen = torch.tensor([sum(counts), *counts[:3], 0.0], dtype=torch.float64)
    return Watch(SimpleNamespace(standards=SimpleNamespace(seen=seen)))


def inputs(rng, rows, chances):
    kinds = [KINDS[k] for k in rng.choice(4, rows, p=chances)]
    return Seen(kinds, [float(kind is Outcome.LOCAL_OOD) for kind in kinds])


def test_inputs_like_calibration_rows_alarm_seldom_however_often_one_looks():
    rng, alarmed = np.random.default_rng(0), 0
    for _ in range(60):
        chances = rng.dirichlet([1, 1, 1, 17])
        seen = watch(np.bincount(rng.choice(4, 40, p=chances), minlength=4).tolist())
        for _ in range(60):
            seen.see(inputs(rng, 100, chances))
            if seen.alarms():
                alarmed += 1
                break
    assert alarmed <= 3, "5 % of 60"


def test_a_fifth_of_foreign_inputs_is_noticed_however_long_all_was_well():
    rng, usual_ones = np.random.default_rng(0), [0.01, 0.01, 0.005, 0.975]
    seen = watch([1, 1, 0, 98])
    for _ in range(200):
        seen.see(inputs(rng, 100, usual_ones))
    assert seen.alarms() == []
    since = seen.evidence["foreign"].rows
    while not seen.alarms():
        seen.see(inputs(rng, 100, [0.01, 0.01, 0.2, 0.78]))
    assert seen.alarms() == ["foreign"] and seen.evidence["foreign"].rows - since <= 1000
    for _ in range(20):
        seen.see(inputs(rng, 100, usual_ones))
    assert seen.alarms() == [], "it is over"


def test_few_calibration_rows_allow_for_more():
    limits = [upper_bound(0, rows, 0.027) for rows in (0, 4, 36, 1000)]
    assert limits == pytest.approx([1.0, 0.595, 0.0954, 0.0036], abs=1e-3)
    unknown = watch([0, 0, 0, 0])
    unknown.see(Seen([Outcome.STRANGER] * 500, [0.0] * 500))
    assert unknown.alarms() == [], "models of an older fedpn count nothing"
    assert sum(CHANCES.values()) == pytest.approx(0.05)


def test_evidence_is_a_few_numbers_that_can_be_kept():
    whole, halves = Evidence(0.1), Evidence(0.1)
    marks = [i % 4 == 0 for i in range(700)]
    whole.see(marks)
    halves.see(marks[:333])
    halves = Evidence.of_state(0.1, halves.state())
    halves.see(marks[333:])
    assert halves == whole and whole.value > 1e3


def test_what_becomes_of_calibration_rows_is_kept_with_the_models(pictures):
    seen = open_bundle(pictures, "0").standards.seen
    rows, strange, nobody, foreign, limit = seen.tolist()
    assert rows >= 30 and strange + nobody <= 0.2 * rows and foreign <= 0.02 * rows and limit >= 0
    older = {k: v for k, v in usual(torch.ones(3))._asdict().items() if k != "seen"}
    assert of_state(older).seen.tolist() == [0.0] * 5


def own_rows(pictures, digits, count):
    counts = open_bundle(pictures, "0").standards.counts.numpy()
    return digits.x[np.flatnonzero(counts[digits.y] > 0)[:count]]


def noise(count):
    return np.random.default_rng(0).integers(0, 256, (count, 1, 28, 28)).astype(np.uint8)


def test_strangers_move_no_share_of_a_service(service, pictures, digits):
    def ask(x):
        told = service.post("/v1/predict", json={"client": "0", "inputs": x[:, 0].tolist()})
        return told.json()["answers"]

    ask(own_rows(pictures, digits, 200))
    (before,) = {answer["own_share"] for answer in ask(own_rows(pictures, digits, 1))}
    for part in np.array_split(noise(4096), 8):
        told = ask(part)
    assert {answer["outcome"] for answer in told} == {"stranger"}
    (after,) = {answer["own_share"] for answer in ask(own_rows(pictures, digits, 1))}
    assert before > 0.95 and after == pytest.approx(before, abs=0.01)


def test_nor_any_share_of_the_library(pictures, digits):
    predictor, own = fedpn.load(pictures, "0"), own_rows(pictures, digits, 50)
    predictor(own)
    alone = predictor.own_share
    mixed = np.concatenate([own, noise(500)])
    predictor(mixed)
    assert predictor.own_share == pytest.approx(alone, abs=1e-6)
    parts = [SimpleNamespace(rows=part) for part in np.array_split(mixed, 5)]
    assert len([answer for _, told in answer_parts(predictor, parts) for answer in told]) == 550
    assert predictor.own_share == pytest.approx(alone, abs=0.02)
    labelled = Rows(torch.from_numpy(mixed), torch.zeros(len(mixed), dtype=torch.long))
    assert score(predictor, labelled)["own_share"] == pytest.approx(alone, abs=1e-6)


def test_rows_with_gaps_move_no_share(table):
    app = make_app(Library([table]))
    with TestClient(app, base_url="http://127.0.0.1") as service:
        stream = app.state.service.library["Oslo"].stream
        rows = [[None, 1.0, 1.0], [1e300, 0.5, 1.0]] * 50
        assert service.post("/v1/predict", json={"client": "Oslo", "inputs": rows}).is_success
        assert (stream.own, stream.foreign) == (1.0, 1.0)


def test_drift_outlives_a_restart_and_goes_by_no_share_that_is_told(pictures, digits, tmp_path):
    url, told = f"sqlite:///{tmp_path / 'd.db'}", []
    for share in ("auto", 0.0):
        app = make_app(Library([pictures]), decisions=Decisions(url))
        with TestClient(app, base_url="http://127.0.0.1") as service:
            x = [*digits.x[:40, 0].tolist(), *noise(40)[:, 0].tolist()]
            question = {"client": "0", "inputs": x, "own_share": share}
            assert service.post("/v1/predict", json=question).is_success
            told.append(service.get("/v1/drift", params={"client": "0"}).json())
    counts = [{name: told[i][name]["rows"] for name in CHANCES} for i in range(2)]
    assert counts[0] == dict.fromkeys(CHANCES, 80)
    assert counts[1] == {"strangers": 160, "abstentions": 80, "foreign": 160}
    assert told[1]["strangers"]["share"] == pytest.approx(0.5, abs=0.05)
    assert any("strangers among the last 160 inputs" in words for words in told[1]["alerts"])
