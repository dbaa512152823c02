"""Figures of one client by hand."""

import numpy as np
import pytest
import torch

from fedpn.data.federation import federate
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Decision
from fedpn.runs import evaluate
from fedpn.runs.evaluate import Answer, View
from fedpn.runs.measure import bring_together, client_metrics

# Four rows of two classes: two of the client's own, two foreign. Outcomes: the client answers,
# rightly; nobody; the federation answers, wrongly; nobody.
LABELS = torch.tensor([0, 0, 1, 1])
LOCAL = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
SHARED = torch.tensor([[0.6, 0.4], [0.4, 0.6], [0.55, 0.45], [0.2, 0.8]])
SOURCE = torch.tensor([0, 0, 1, 1])
CHOSEN = torch.where(SOURCE.bool()[:, None], SHARED, LOCAL)
EPISTEMIC = torch.tensor([0.1, 0.3, 0.2, 0.9])
TOTAL = torch.tensor([0.1, 0.2, 0.3, 0.4])


def view(foreign=2):
    """The client, with so many of the foreign rows."""
    keep = slice(0, 2 + foreign)
    decision = Decision(
        CHOSEN[keep],
        CHOSEN.argmax(-1)[keep],
        torch.arange(4)[keep],
        EPISTEMIC[keep],
        TOTAL[keep],
        TOTAL[keep],
    )
    tables = {"local": LOCAL, "global": SHARED, "switch": CHOSEN, "oracle": CHOSEN}
    places = torch.arange(2 + foreign)
    return View(
        np.arange(2 + foreign),
        LABELS[keep],
        {"ind": places[:2], "ood": places[2:], "mix": places if foreign else places[:0]},
        {
            who: Answer(probs[keep], TOTAL[keep], probs[keep].argmax(-1))
            for who, probs in tables.items()
        },
        EPISTEMIC[keep],
        decision,
        Quantiles(0.25, 0.15, 0.35),
    )


def test_the_figures_of_a_client():
    found = client_metrics(view(), "switch")
    assert found["accuracy"]["local"] == {"ind": 1.0, "ood": 0.0, "mix": 0.5}
    assert found["accuracy"]["global"] == {"ind": 0.5, "ood": 0.5, "mix": 0.5}
    assert found["accuracy"]["switch"] == {"ind": 1.0, "ood": 0.5, "mix": 0.75}
    delegated = {"ind": 0.0, "ood": 1.0}
    assert found["routing"] == {"auroc": 0.75, "fpr95": 0.5, "delegated": delegated}
    assert found["abstention"]["coverage"] == 0.5, "the first and the third are answered"
    assert list(found["abstention"]["outcomes"].values()) == [0.25] * 4 + [0]  # no stranger
    truth = CHOSEN[torch.arange(4), LABELS].double()
    assert found["calibration"]["nll"] == pytest.approx(float(-truth.log().mean()))


def test_very_many_classes_are_judged_by_a_sample(monkeypatch):
    """Own rows all, foreign ones some, those of Mix among them; alike from run to run."""
    labels = np.arange(600) % 6
    owned = [np.flatnonzero(np.isin(labels, pair)) for pair in ((0, 1), (2, 3), (4, 5))]
    federation = federate(labels, owned, seed=0)
    whole, sets = evaluate.rows_to_judge(federation, 0)
    monkeypatch.setattr(evaluate, "JUDGED", 6 * 80)
    rows, some = evaluate.rows_to_judge(federation, 0)
    assert len(federation.ind(0)) == 60 and len(whole) == 60 + 120 and len(rows) == 60 + 80
    assert set(rows) < set(whole) and np.array_equal(rows[:60], federation.ind(0))
    assert set(rows[some["mix"]]) == set(whole[sets["mix"]])
    np.testing.assert_array_equal(rows, evaluate.rows_to_judge(federation, 0)[0])


def test_where_nothing_is_foreign_confidence_is_judged_by_own_rows():
    found = client_metrics(view(foreign=0), "switch")
    assert found["accuracy"]["switch"] == {"ind": 1.0, "ood": None, "mix": None}
    delegated = {"ind": 0.0, "ood": None}
    assert found["routing"] == {"auroc": None, "fpr95": None, "delegated": delegated}
    assert found["abstention"]["coverage"] == 0.5
    truth = LOCAL[torch.arange(2), LABELS[:2]].double()
    assert found["calibration"]["nll"] == pytest.approx(float(-truth.log().mean()))


def test_the_worst_client_is_the_worst():
    about = {"client": 0, "classes": [0], "rows": 2}
    good, poor = (about | client_metrics(v, "switch") for v in (view(), view()))
    poor["accuracy"]["switch"] = {"ind": 0.5, "ood": 0.25, "mix": 0.375}
    total = bring_together([good, poor], "log_density")
    assert total["spread"]["worst"]["switch"] == {"ind": 0.5, "ood": 0.25, "mix": 0.375}
    assert total["accuracy"]["switch"]["mix"] == pytest.approx(0.5625)
    assert total["spread"]["std"]["switch"]["mix"] == pytest.approx(0.1875)
