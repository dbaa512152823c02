"""Labelled rows judge a finished model and teach it new thresholds; a card tells what it is."""

import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, recall_score

import fedpn
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.serving.bundle import open_bundle
from fedpn.serving.card import card
from fedpn.serving.export import export
from fedpn.serving.labelled import calibrate, read_labelled, score
from fedpn.serving.predict import load

SMALL = {"dataset": "digits", "algorithm": "analytic", "clients": 3, "head__filters": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("labelled") / "run"
    fedpn.run(out, **SMALL)
    return out


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    digits = fedpn.open_dataset("digits")
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(path, images=digits.x[:600], labels=digits.y[:600])
    return path


def test_a_score_is_what_the_answers_come_to(run, rows, tmp_path, capsys):
    assert main(["score", str(run), str(rows), "--client", "1", "--out", f"{tmp_path}/s.json"]) == 0
    told = json.loads((tmp_path / "s.json").read_text())
    assert "wrong of the answered" in capsys.readouterr().out
    digits = fedpn.open_dataset("digits")
    answers = fedpn.load(run, "1")(digits.x[:600])
    guess = np.array([int(a.guess) for a in answers])
    there = np.array([a.label is not None for a in answers])
    truth = digits.y[:600]
    assert told["answered"] == pytest.approx(there.mean())
    assert told["wrong of the answered"] == pytest.approx((guess != truth)[there].mean())
    assert told["by_class"]["confusion"] == confusion_matrix(truth, guess).tolist()
    expected = recall_score(truth, guess, average=None)
    assert told["by_class"]["recall"] == pytest.approx(expected.tolist())
    assert sum(told["outcomes"].values()) == pytest.approx(1)


def test_new_rows_teach_new_thresholds_and_a_promise(run, rows, tmp_path, capsys):
    out = tmp_path / "again"
    command = ["calibrate", str(run), str(rows), "--client", "1", "--risk", "0.05"]
    assert main([*command, "--sets", "0.1", "--out", str(out)]) == 0
    assert "at most 5 % are answered wrongly" in capsys.readouterr().out
    before, after = open_bundle(run, "1"), open_bundle(out)
    assert before.standards.promises is None and after.standards.promises is not None
    assert after.about.routing.risk == 0.05
    assert after.rule.own_doubt != before.rule.own_doubt
    found = score(load(out), read_labelled(str(rows), after))
    assert found["wrong of the answered"] <= 0.05 and found["promised"] == 0.05
    assert found["sets"]["missed"] <= 0.12
    answers = load(out)(fedpn.open_dataset("digits").x[:5])
    assert all(a.guess in a.classes for a in answers) and "classes" in answers[0].row()
    assert main([*command, "--sets", "2", "--out", str(tmp_path / "bad")]) == 2


def test_rows_of_another_form_are_refused(run, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    with pytest.raises(UserError, match="rows of the shape"):
        read_labelled(str(tmp_path / "t.npz"), open_bundle(run, "0"))


def test_too_few_rows_borrow_from_the_bundle(run, rows, tmp_path):
    bundle = open_bundle(run, "2")
    few = read_labelled(str(rows), bundle)
    few = few._replace(x=few.x[:6], y=few.y[:6])
    found = calibrate(run, "2", few, tmp_path / "few", risk=0.1)
    assert found.borrowed and "federation" in found.remarks()[0]


def test_the_card_tells_data_classes_and_promise(run, tmp_path):
    metrics = json.loads((run / "metrics.json").read_text())
    text = card(open_bundle(run, "0"), metrics)
    for words in ("analytic", "Bayes' rule", "refused by a gate", "none was asked for", "| 7 |"):
        assert words in text
    export(run, "0", tmp_path / "one")
    told = card(open_bundle(tmp_path / "one"), metrics)  # of the version that was exported
    assert (tmp_path / "one" / "MODEL_CARD.md").read_text(encoding="utf-8") == told
    assert len(told.splitlines()) == len(text.splitlines())
