"""Bayes' rule at its edges: by hand, by SciPy, and where numbers end."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, logit

from fedpn.routing.bayes import WEIGHTS, Bayes, Belief, RunningShare, believe, entropy, learn_share
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome
from fedpn.routing.rule import Lesson, Scores, Views
from fedpn.routing.settings import RoutingSettings

OWN, FOREIGN = torch.tensor([0.75, 0.25, 0, 0]).double(), torch.tensor([0, 0, 0.5, 0.5]).double()
NONE = torch.zeros(4).double()


def opinion(probs):
    probs = torch.as_tensor(probs, dtype=torch.float64)
    spread = torch.from_numpy(stats.entropy(probs.numpy(), axis=1))
    return Opinion(probs, spread, spread, probs.log(), probs)


def views(local, shared, **more):
    return Views(opinion(local), opinion(shared), torch.zeros(len(shared)), **more)


SHARED, LOCAL = [[0.4, 0.3, 0.2, 0.1]], [[0.1, 0.8, 0.05, 0.05]]


def normed(values):
    return (values / values.sum(-1, keepdims=True)).tolist()


@pytest.mark.parametrize("weight", [0.25, 0.75, 1.0])
def test_the_clients_model_has_its_say_as_a_power(weight):
    """p(y | own) ∝ (p_g·π)^(1−w)·p_local^w; classes that the client has not have next to none."""
    found = believe(views(LOCAL, SHARED), OWN, FOREIGN, weight)
    prior = np.array([0.75, 0.25, 1e-300, 1e-300])
    bayes = np.array(SHARED) * prior / (np.array(SHARED) * prior).sum()
    expected = np.maximum(bayes, np.exp(-1e3)) ** (1 - weight) * np.array(LOCAL) ** weight
    np.testing.assert_allclose(found.own, normed(expected), atol=1e-12)
    np.testing.assert_allclose(found.foreign, [[0, 0, 2 / 3, 1 / 3]])
    np.testing.assert_allclose(found.odds, [math.log((0.3 + 0.075) / (0.1 + 0.05))])


def test_a_head_of_the_clients_own_stands_for_the_federations_among_own_inputs():
    own = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log() + 7.0  # logits, up to a constant
    found = believe(views(LOCAL, SHARED, own_logits=own), OWN, FOREIGN, 0.0)
    np.testing.assert_allclose(found.own, [[0.6, 0.4, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(found.odds, [math.log(0.375 / 0.15)])


def test_a_client_with_every_class_goes_by_looks_where_there_are_some():
    even = torch.full((4,), 0.25).double()
    found = believe(views(LOCAL, SHARED), even, NONE, 0.0)
    assert found.odds.tolist() == [100.0]
    np.testing.assert_allclose(found.foreign, SHARED)
    three = views(LOCAL * 3, SHARED * 3, likeness=torch.tensor([-500.0, 2.0, 500.0]))
    found = believe(three, torch.tensor([0.7, 0.1, 0.1, 0.1]).double(), NONE, 0.0)
    assert found.odds.tolist() == [-100.0, 2.0, 100.0]
    np.testing.assert_allclose(found.foreign, SHARED * 3)
    assert found.own[0, 0] > found.foreign[0, 0]


def test_a_class_that_a_model_thinks_impossible_stays_a_number():
    found = believe(views([[1.0, 0, 0, 0]], [[0, 0, 1.0, 0]]), OWN, FOREIGN, 0.5)
    assert found.odds.isfinite().all() and found.odds < -60
    assert found.own.isfinite().all()


@pytest.mark.parametrize(("share", "chance"), [(0.0, 1e-6), (1.0, 1 - 1e-6), (0.25, 0.25)])
def test_no_share_is_so_extreme_that_inputs_cannot_change_it(share, chance):
    sides = torch.eye(2).double()
    belief = Belief(torch.zeros(1).double(), sides[:1], sides[1:])
    assert float(belief.own_chance(share)) == pytest.approx(chance, rel=1e-9)
    np.testing.assert_allclose(belief.probs(share), [[chance, 1 - chance]], rtol=1e-9)


@pytest.mark.parametrize(("own", "foreign"), [(1.0, 1.0), (20.0, 5.0), (1.0, 30.0)])
def test_the_share_is_where_em_rests(own, foreign):
    """The root of share = (Σ P(own | x) + own) / (n + own + foreign), found another way."""
    odds = np.random.default_rng(0).normal(1.0, 3.0, 40)

    def gap(share):
        return (expit(odds + logit(share)).sum() + own) / (40 + own + foreign) - share

    right = brentq(gap, 1e-9, 1 - 1e-9)
    spoilt = torch.tensor([*odds, math.nan, math.inf, -math.inf])
    assert learn_share(spoilt, own, foreign) == pytest.approx(right, abs=1e-6)


def test_a_stream_forgets_and_may_turn():
    stream = RunningShare(window=50)
    assert stream.share == 0.5
    mine, theirs = torch.full((30,), 90.0), torch.full((30,), -90.0)
    assert stream.learn(mine) == pytest.approx(31 / 32)
    assert (stream.own, stream.foreign) == (pytest.approx(31), 1)
    assert stream.share == pytest.approx(31 / 32)
    assert stream.learn(mine) == pytest.approx(61 / 62)
    assert stream.own == pytest.approx(50 * 61 / 62), "no more than the window"
    assert stream.foreign == 1, "one stays on each side"
    assert stream.learn(theirs) == pytest.approx(stream.own / 50)
    assert stream.own + stream.foreign == pytest.approx(50)
    for _ in range(9):
        stream.learn(theirs)
    assert stream.own == 1 and stream.share < 0.03
    spoilt = RunningShare()
    spoilt.learn(torch.full((10,), math.nan))
    assert (spoilt.own, spoilt.foreign, spoilt.window) == (1, 1, 200)


def test_entropies_are_scipys_and_next_to_zero_all_alike():
    probs = np.random.default_rng(1).dirichlet(np.full(5, 0.3), 100)
    np.testing.assert_allclose(entropy(torch.from_numpy(probs)), stats.entropy(probs, axis=1))
    sure = torch.tensor([[1.0, 0.0], [1 - 1e-9, 1e-9]], dtype=torch.float64)
    assert entropy(sure).tolist() == [1e-6, 1e-6]


def test_a_say_goes_from_none_to_all_in_even_steps():
    assert np.linspace(0, 1, 5).tolist() == list(WEIGHTS)


def test_calibration_takes_the_likeliest_weight_and_its_doubts():
    """By the mean log-likelihood of all rows; where two are equal, by the lesser say."""
    rng = np.random.default_rng(2)
    shared, local = (rng.dirichlet(np.ones(4), 39) for _ in range(2))
    local[:, 2:] *= 0.01
    local = local / local.sum(1, keepdims=True)
    labels, counts = torch.from_numpy(rng.integers(0, 2, 39)), torch.tensor([3, 1, 0, 0])
    seen = views(local, shared)
    losses = {}
    for weight in WEIGHTS:
        own = believe(seen, OWN, FOREIGN, weight).own.numpy()
        losses[weight] = -np.log(own[np.arange(39), labels]).mean()
    settings = RoutingSettings(abstain=0.25)
    rule = Bayes.calibrate(Lesson(seen, labels, counts), settings)
    assert rule.weight == min(losses, key=losses.get) > 0
    assert rule.own.tolist() == OWN.tolist() and rule.foreign.tolist() == FOREIGN.tolist()
    mixed = believe(seen, OWN, FOREIGN, rule.weight).probs(0.5)
    doubts = np.sort(stats.entropy(mixed.numpy(), axis=1))
    assert rule.own_doubt == pytest.approx(doubts[29])  # the ⌈40·0.75⌉-th
    assert rule.foreign_doubt == pytest.approx(np.sort(stats.entropy(shared, axis=1))[29])
    alone = Bayes.calibrate(Lesson(views(shared, shared), labels, counts), settings)
    assert alone.weight == 0.0


def test_on_the_border_inputs_are_own_and_clear():
    """Half a chance is the client's; a doubt must exceed its limit."""
    half = [[0.25, 0.25, 0.25, 0.25]]
    even = torch.tensor([0.5, 0.5, 0, 0]).double()
    doubt = float(entropy(believe(views(half, half), even, FOREIGN, 0.0).probs(0.5))[0])
    decision = Bayes(even, FOREIGN, 0.0, doubt, 0.0).decide(views(half, half))
    assert decision.outcome.tolist() == [Outcome.LOCAL_CONFIDENT]
    assert float(decision.epistemic) == 0.5
    assert float(decision.aleatoric) == pytest.approx(math.log(2))
    assert float(decision.total) == pytest.approx(math.log(4))


def test_a_client_that_is_sure_of_all_its_rows_answers_them():
    """Doubts next to zero are all alike, and so is the limit: no rounding may part them."""
    sure = views(*([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]] * 30,) * 2)
    lesson = Lesson(sure, torch.arange(60) % 2, torch.tensor([30, 30, 0, 0]))
    rule = Bayes.calibrate(lesson, RoutingSettings())
    assert rule.own_doubt == 1e-6
    assert rule.decide(sure).answered.all()


def test_the_row_whose_doubt_is_the_limit_is_answered():
    """The threshold is the doubt of one of the rows: that one does not exceed it."""
    shared = np.random.default_rng(4).dirichlet(np.ones(4), 199)
    seen = views(shared, shared)
    belief = believe(seen, OWN, FOREIGN, 0.0)
    doubts, own = entropy(belief.probs(0.5)), belief.own_chance(0.5) >= 0.5
    for doubt in doubts.tolist():
        rule = Bayes(OWN, FOREIGN, 0.0, doubt, doubt)
        assert torch.equal(rule.decide(seen).answered, doubts <= doubt)
    assert own.any() and not own.all()


def test_one_strange_label_does_not_choose_the_weight():
    """A row of a class that the client has no training rows of is unlikely by any weight."""
    sure, vague = [[0.98, 0.02, 0, 0], [0.02, 0.98, 0, 0]], [[0.6, 0.4, 0, 0], [0.4, 0.6, 0, 0]]
    labels = torch.tensor([0, 1] * 4 + [2])
    lesson = Lesson(views((vague * 5)[:9], (sure * 5)[:9]), labels, torch.tensor([3, 1, 0, 0]))
    assert Bayes.calibrate(lesson, RoutingSettings(abstain=0.5)).weight == 0.0


def test_what_is_common_leaves_the_clients_own_model_out():
    rule = Bayes(OWN, FOREIGN, 0.5, 1.0, 1.0)
    own = torch.zeros(1, 4)
    answers = []
    for local, share in ((LOCAL, 0.5), (SHARED, 0.9)):
        common, seen = rule.common(views(local, SHARED, share=share, own_logits=own))
        answers.append(common.decide(seen).probs)
    assert torch.equal(*answers)
    plain = Bayes(OWN, FOREIGN, 0.0, 1.0, 1.0).decide(views(LOCAL, SHARED))
    assert torch.equal(answers[0], plain.probs)


def test_words_have_the_limit_of_their_side():
    rule = Bayes(OWN, FOREIGN, 0.0, own_doubt=0.7, foreign_doubt=0.3)
    said = {o: rule.reason(o, Scores(0.25, 9.0, 0.5)) for o in Outcome}
    own = "75 % likely this client's"
    assert said[Outcome.LOCAL_CONFIDENT] == f"{own}; the answer is clear (entropy 0.5 ≤ 0.7)"
    assert said[Outcome.LOCAL_AMBIGUOUS] == f"{own}; the answer is ambiguous (entropy 0.5 ≤ 0.7)"
    assert said[Outcome.LOCAL_OOD] == f"{own}; the federation is certain (entropy 0.5 > 0.3)"
    unsure = f"{own}; the federation is uncertain (entropy 0.5 > 0.3)"
    assert said[Outcome.GLOBAL_UNCERTAIN] == unsure
    top = math.log(4)
    assert [text[:12] for text in Bayes(OWN, FOREIGN, 0.0, 0.7, top).remarks(4)] == ["no foreign i"]
    assert [text[:12] for text in Bayes(OWN, FOREIGN, 0.0, top, 0.7).remarks(4)] == ["no own input"]
