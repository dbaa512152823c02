"""What answers are held to: promises by Monte Carlo, sets, temperatures, operating points."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpn.core.errors import UserError
from fedpn.routing.bayes import Bayes
from fedpn.routing.opinion import of_logits
from fedpn.routing.outcomes import Outcome
from fedpn.routing.pooled import count_rows
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Lesson, Scores, Views
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import decide, hold, of_state, reason, teach, usual

K = 5
OWN = torch.tensor([60, 40, 0, 0, 0])  # training rows of the client


def rows(rng, count, classes, strength=2.5):
    """Labels, and what a model that is often right says of them."""
    labels = torch.from_numpy(rng.choice(classes, count))
    logits = torch.from_numpy(rng.normal(size=(count, K)))
    return labels, logits + strength * torch.nn.functional.one_hot(labels, K)


def views_of(rng, labels, logits):
    """A client's own model knows classes 0 and 1 alone; its score tells them from others."""
    own = logits.clone()
    own[:, 2:] = -9.0
    score = torch.from_numpy(rng.normal(size=len(labels))) + 4.0 * (labels > 1)
    z = torch.zeros(len(labels), 1)
    return Views(of_logits(1.5 * own, z), of_logits(logits, z), score)


def lesson(rng, count=150, pool=600, clients=10, weighs=True, asked=None):
    """A client's rows and the counts of others; each has two classes next to each other."""
    labels, logits = rows(rng, count, [0, 1])
    parts = []
    for client in range(clients):
        classes = [client % K, (client + 1) % K]
        theirs, said = rows(rng, pool // clients, classes)
        counts = torch.zeros(K, dtype=torch.long)
        counts[classes] = 50
        opinion = of_logits(said, torch.zeros(len(theirs), 1))
        parts.append(count_rows(opinion, theirs, counts, asked or SETTINGS, weighs))
    pooled = {name: sum(part[name] for part in parts) for name in parts[0]}
    return Lesson(views_of(rng, labels, logits), labels, OWN, pooled)


SETTINGS = RoutingSettings(risk=0.1, sure=0.9, sets=0.1)


@pytest.mark.parametrize("kind", [Quantiles, Bayes])
def test_promises_hold_as_often_as_they_say(kind):
    rng = np.random.default_rng(0)
    fresh, logits = rows(rng, 40_000, list(range(K)))
    test = views_of(rng, fresh, logits)
    own, broken, answered, missed = fresh < 2, [], [], []
    for _ in range(200):
        rule, held = teach(kind, lesson(rng, weighs=kind is Bayes), SETTINGS)
        found = hold(decide(rule, test, held), test, held)
        wrong = found.label != fresh
        for side in (own, ~own):
            told = found.answered & side
            answered.append(float(told.sum() / side.sum()))
            broken.append(float(wrong[told].double().mean()) > 0.1 if told.any() else False)
            missed.append(float((~found.classes.gather(1, fresh[:, None]))[side].double().mean()))
    chance = 0.1 + 3 * math.sqrt(0.09 / 200)
    assert np.mean(broken[::2]) <= chance and np.mean(broken[1::2]) <= chance
    assert np.mean(answered[::2]) > 0.5 and np.mean(answered[1::2]) > 0.5
    assert np.mean(missed[::2]) <= 0.11


def test_a_promise_that_is_not_tested_is_broken():
    """The test above can fail: without limits far more than a tenth of the answers are wrong."""
    rng = np.random.default_rng(0)
    labels, logits = rows(rng, 20_000, [0, 1], strength=1.0)
    test = views_of(rng, labels, logits)
    rule, held = teach(Quantiles, lesson(rng), RoutingSettings(temperature="off"))
    found = hold(decide(rule, test, held), test, held)
    assert float((found.label != labels)[found.answered].double().mean()) > 0.15


def test_a_client_with_few_rows_borrows_and_says_so():
    taught = lesson(np.random.default_rng(1), count=4)
    rule, held = teach(Quantiles, taught, RoutingSettings())
    assert rule.epistemic == -math.inf and held.borrowed
    decision = hold(decide(rule, taught.views, held), taught.views, held)
    assert decision.delegated.all(), "it cannot know its own, so the federation is asked"
    assert any("too few calibration rows" in text for text in rule.remarks(K))
    assert any("too few rows for limits of its own" in text for text in held.remarks())
    assert "too few rows to know its own" in rule.reason(Outcome.LOCAL_OOD, Scores(1, 1, 0.1))
    asked = RoutingSettings(risk=0.2)
    taught = lesson(np.random.default_rng(1), count=4, pool=2000, asked=asked)
    rule, held = teach(Bayes, taught, asked)
    assert held.borrowed and 0 < rule.own_doubt <= math.log(K)
    assert held.promises[0].threshold > -math.inf, "other clients' limits promise"
    assert "other clients' calibration rows" in held.words()


def test_where_nothing_can_be_borrowed_few_rows_are_refused_in_words():
    taught = lesson(np.random.default_rng(1), count=4)._replace(pooled=None)
    with pytest.raises(UserError, match="4 calibration rows; a 10 % threshold needs at least 9"):
        teach(Quantiles, taught, RoutingSettings())


def test_too_few_rows_for_a_promise_borrow_the_federations():
    taught = lesson(np.random.default_rng(1), count=25)  # enough for thresholds, not for 5 %
    rule, held = teach(Bayes, taught, replace(SETTINGS, risk=0.05))
    assert held.borrowed
    rule, held = teach(Bayes, taught._replace(pooled=None), replace(SETTINGS, risk=0.05))
    assert held.promises[0].threshold == -math.inf
    assert not hold(decide(rule, taught.views, held), taught.views, held).answered.any()
    assert "cannot be promised of own inputs" in held.remarks()[0]


def test_limits_that_cannot_bind_are_named():
    limit = math.log(2)
    assert len(Quantiles(0.0, limit, limit).remarks(2)) == 2
    assert Quantiles(0.0, 0.5, 0.5).remarks(2) == []
    even = torch.full((2,), 0.5)
    assert len(Bayes(even, even, 0.0, limit, 0.1).remarks(2)) == 1


def test_a_method_without_a_switch_can_promise_too():
    taught = lesson(np.random.default_rng(2))._replace(pooled=None)
    rule, held = teach(None, taught, replace(SETTINGS, sets=0.0))
    assert rule is None
    found = hold(decide(None, taught.views, held), taught.views, held)
    assert 0 < float(found.answered.double().mean()) <= 1
    assert float((found.label != taught.labels)[found.answered].double().mean()) <= 0.1


def test_forty_of_forty_are_not_taken_for_certainty():
    """Likelihood alone would take the sharpest temperature there is."""
    labels = torch.arange(40) % 2
    logits = torch.zeros(40, len(OWN))
    logits[torch.arange(40), labels] = 3.0
    clear = Views(*(of_logits(logits, torch.zeros(40, 1)),) * 2, torch.zeros(40))
    _, held = teach(None, Lesson(clear, labels, OWN), RoutingSettings())
    assert float(held.temperature[0]) > 0.2
    found = hold(decide(None, clear, held), clear, held)
    assert float(found.probs.amax(-1).mean()) == pytest.approx(40 / 41, abs=0.02)


def test_temperatures_make_confidence_deserved_and_change_no_answer():
    rng = np.random.default_rng(3)
    labels, logits = rows(rng, 2000, [0, 1])
    sure = Views(*(of_logits(10 * logits, torch.zeros(2000, 1)),) * 2, torch.zeros(2000))
    _, held = teach(None, Lesson(sure, labels, OWN), RoutingSettings())
    before = decide(None, sure, held)
    after = hold(before, sure, held)
    loss = [
        -d.probs.gather(1, labels[:, None]).clamp(min=1e-12).log().mean() for d in (before, after)
    ]
    assert loss[1] < 0.7 * loss[0]
    assert float(held.temperature[0]) == pytest.approx(4, rel=0.25)
    assert torch.equal(before.label, after.label)
    _, off = teach(None, Lesson(sure, labels, OWN), RoutingSettings(temperature="off"))
    torch.testing.assert_close(hold(before, sure, off).probs, before.probs)


def test_the_balanced_point_finds_rare_classes():
    rng = np.random.default_rng(4)
    labels = torch.from_numpy((rng.random(4000) < 0.06).astype(np.int64))
    shift = torch.from_numpy(rng.normal(size=4000)) + 1.5 * labels
    # The posterior of the true model: log odds with the prior in them.
    odds = 1.5 * shift - 1.5**2 / 2 + math.log(0.06 / 0.94)
    opinion = of_logits(torch.stack([torch.zeros(4000).double(), odds], 1), torch.zeros(4000, 1))
    seen = Lesson(Views(opinion, opinion, shift), labels, torch.bincount(labels))
    recall = {}
    for point in ("likeliest", "balanced"):
        _, held = teach(None, seen, RoutingSettings(operating_point=point))
        label = hold(decide(None, seen.views, held), seen.views, held).label
        recall[point] = float((label[labels == 1] == 1).double().mean())
    assert recall["likeliest"] < 0.25 and recall["balanced"] > 0.7


def test_standards_are_kept_to_the_bit_and_checked_as_they_are_read():
    _, held = teach(Bayes, lesson(np.random.default_rng(5)), SETTINGS)
    state = held._asdict()
    assert all(torch.equal(a, b) for a, b in zip(of_state(state), held, strict=True))
    with pytest.raises(UserError, match="cannot be read: odd"):
        of_state({name: t for name, t in state.items() if name != "odd"})
    with pytest.raises(UserError, match="not finite"):
        of_state(state | {"point": torch.full((K,), torch.nan)})


def test_reasons_speak_of_the_promise_where_there_is_one():
    rule, held = teach(Quantiles, lesson(np.random.default_rng(6)), SETTINGS)
    scores = Scores(rule.epistemic - 1, 0.1, 0.01)
    assert "sure enough for the promise" in reason(rule, Outcome.LOCAL_CONFIDENT, scores, held)
    doubtful = scores._replace(total=9.0)
    assert "too doubtful for the promise" in reason(rule, Outcome.LOCAL_AMBIGUOUS, doubtful, held)
    plain = reason(rule, Outcome.LOCAL_CONFIDENT, scores, usual(OWN.double()))
    assert plain == rule.reason(Outcome.LOCAL_CONFIDENT, scores)
    assert "at most 10 %" in held.words() and usual(OWN.double()).words() == ""


def test_a_promise_does_not_hang_on_the_share_that_a_stream_has():
    """Else a stream of own inputs would have foreign ones answered as own, and surely."""
    taught = lesson(np.random.default_rng(7))
    rule, held = teach(Bayes, taught, SETTINGS)
    half, nearly_all = (
        hold(decide(rule, taught.views._replace(share=share), held), taught.views, held)
        for share in (0.5, 0.98)
    )
    assert torch.equal(half.outcome, nearly_all.outcome)
    assert torch.equal(half.label, nearly_all.label)
    free = usual(OWN.double())
    other = decide(rule, taught.views._replace(share=0.98), free)
    assert not torch.equal(other.probs, half.probs)


def test_what_was_not_tested_is_not_promised():
    settings = replace(SETTINGS, operating_point="balanced")
    with pytest.raises(UserError, match="does not go with routing"):
        teach(Bayes, lesson(np.random.default_rng(8)), settings)


def test_classes_that_a_client_has_not_are_not_blown_up():
    """Balanced: by the prior that answers were formed under, not by rows that are not there."""
    taught = lesson(np.random.default_rng(9))._replace(counts=torch.tensor([95, 5, 0, 0, 0]))
    _, held = teach(Bayes, taught, RoutingSettings(operating_point="balanced"))
    assert held.point[1] > held.point[2] > held.point[0]
    assert float(held.point.max() / held.point.min()) < 30
