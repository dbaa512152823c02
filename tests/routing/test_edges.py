"""Routing at its borders: what a number that lies on one counts as, and what is said of it."""

import math

import pytest
import torch

from fedpn.routing.bayes import Bayes
from fedpn.routing.opinion import Opinion, join, of_logits
from fedpn.routing.outcomes import Outcome
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.routers import GaussianRouter, Router
from fedpn.routing.rule import (
    Decision,
    Rule,
    Scores,
    Views,
    of_one_model,
    refuse_strangers,
    refuse_unsound,
)
from fedpn.routing.rules import from_state, to_state
from fedpn.routing.scores import SCORES
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, never_binds, rows_needed, threshold

MOST = torch.finfo(torch.float32).max


@pytest.mark.parametrize(
    ("score", "limit", "words"),
    [
        (1.0, 1.0, "1 ≤ 1"),
        (0.5, 2.0, "0.5 ≤ 2"),
        (0.123, 0.124, "0.123 ≤ 0.124"),
        (1.24, 1.11, "1.2 > 1.1"),
        (1.0000001, 1.0, "1.0000001 > 1"),
    ],
)
def test_comparisons_show_the_digits_that_tell(score, limit, words):
    assert compare(score, limit) == words


def test_a_limit_binds_unless_it_is_next_to_the_entropy_of_no_idea():
    top = math.log(10)
    assert never_binds(top, 10) and never_binds(0.9995 * top, 10)
    assert not never_binds(0.998 * top, 10) and not never_binds(0.0, 10)


def test_shares_near_one_still_need_a_row():
    assert rows_needed(0.9) == rows_needed(1.0) == 1
    assert threshold(torch.tensor([3.0, 5.0]), 1.0) == 3.0


def decision(**changes):
    two = torch.tensor([0.1, 0.2])
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    kept = {"epistemic": two, "aleatoric": two, "total": two, "label": torch.tensor([0, 2])}
    return Decision(**({"probs": probs, "outcome": torch.tensor([0, 3])} | kept | changes))


@pytest.mark.parametrize("column", ["epistemic", "aleatoric", "total"])
@pytest.mark.parametrize(
    ("value", "shown"), [(math.nan, MOST), (math.inf, MOST), (-math.inf, -MOST)]
)
def test_one_number_that_is_none_and_nobody_answers(column, value, shown):
    found = refuse_unsound(decision(**{column: torch.tensor([0.1, value])}))
    assert found.outcome.tolist() == [0, int(Outcome.STRANGER)]
    torch.testing.assert_close(found.probs[1], torch.full((3,), 1 / 3))
    assert found.probs[0].equal(decision().probs[0])
    assert found.label.tolist() == [0, 0]
    assert getattr(found, column).tolist() == [pytest.approx(0.1), shown]


def test_strangers_are_nobodys_and_others_stay():
    found = refuse_strangers(decision(), torch.tensor([True, False]))
    assert found.outcome.tolist() == [4, 3]
    assert found.answered.tolist() == [False, False]
    assert found.delegated.tolist() == [False, True]
    assert [tuple(s) for s in found.scores()] == [tuple([v] * 3) for v in found.total.tolist()]


def test_one_model_answers_all_that_it_can():
    opinion = of_logits(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    found = of_one_model(opinion)
    assert found.outcome.tolist() == [0, 0] and found.label.tolist() == [0, 1]
    highest = [1 / (1 + math.exp(-4)), 1 / (1 + math.exp(-1))]
    assert found.epistemic.tolist() == pytest.approx([1 - p for p in highest], abs=1e-6)


def test_views_are_taken_with_all_that_they_have():
    opinion = of_logits(torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1))
    whole = Views(opinion, opinion, torch.tensor([1.0, 2.0]), 0.3)
    index = torch.tensor([1])
    assert whole.take(index).own_logits is None and whole.take(index).likeness is None
    more = whole._replace(own_logits=opinion.logits, likeness=torch.tensor([5.0, 6.0]))
    taken = more.take(index)
    assert taken.own_logits.tolist() == [[0.0, 1.0]] and taken.likeness.tolist() == [6.0]
    assert taken.score.tolist() == [2.0] and taken.share == 0.3


def test_a_rule_that_says_nothing_of_its_own():
    """The template: what a rule of one's own need not write."""
    rule, views = Rule(), object()
    assert rule.common(views) == (rule, views)
    assert Rule.borrow(None, RoutingSettings()) is None
    assert rule.remarks(3) == [] and rule.learn_share(views) == 0.5
    assert (Rule.needs_router, Rule.weighs, Rule.pooled_doubts) == (True, False, "shared")
    for outcome in (Outcome.LOCAL_OOD, Outcome.GLOBAL_UNCERTAIN):
        assert "another client's" in rule.whose(outcome, Scores(0, 0, 0))
    for outcome in (Outcome.LOCAL_CONFIDENT, Outcome.LOCAL_AMBIGUOUS):
        assert "this client's own" in rule.whose(outcome, Scores(0, 0, 0))
    calls = [
        lambda: Rule.calibrate(None, RoutingSettings()),
        lambda: rule.decide(views),
        lambda: rule.reason(Outcome.LOCAL_OOD, Scores(0, 0, 0)),
        lambda: Router().score(None, None, {}),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()


def test_the_switch_needs_a_router_and_bayes_weighs_without():
    assert Quantiles.needs_router and not Quantiles.weighs
    assert Bayes.weighs and not Bayes.needs_router


def test_one_part_is_joined_too():
    part = of_logits(torch.tensor([[4.0, 0.0]]), torch.zeros(1, 1))
    assert join([part]).logits.equal(part.logits)


def test_the_switch_says_which_side_of_which_limit():
    rule = Quantiles(epistemic=4.0, aleatoric=0.7, total=0.3)
    on = Scores(4.0, 0.6, 0.4)
    like, unlike = ("scored like this client's rows (4 ≤ 4)", "scored unlike this client's rows")
    assert rule.reason(Outcome.LOCAL_CONFIDENT, on) == f"{like}, and clear (0.6 ≤ 0.7)"
    assert rule.reason(Outcome.LOCAL_AMBIGUOUS, on) == f"{like}, but ambiguous (0.6 ≤ 0.7)"
    off = on._replace(epistemic=5.0)
    sure, not_sure = "and the federation is sure", "and the federation is not sure"
    assert rule.reason(Outcome.LOCAL_OOD, off) == f"{unlike} (5 > 4), {sure} (0.4 > 0.3)"
    assert rule.reason(Outcome.GLOBAL_UNCERTAIN, off) == f"{unlike} (5 > 4), {not_sure} (0.4 > 0.3)"


def test_the_switch_remarks_on_each_limit_that_cannot_bind():
    top = math.log(3)
    assert [t[:6] for t in Quantiles(1.0, top, 0.5).remarks(3)] == ["no own"]
    assert [t[:6] for t in Quantiles(1.0, 0.5, top).remarks(3)] == ["no for"]
    assert [t[:6] for t in Quantiles(-math.inf, top, 0.5).remarks(3)] == ["too fe"]


def test_a_rule_is_read_among_others_of_a_client():
    kept = to_state({"quantiles": Quantiles(1.0, 2.0, 3.0)})
    state = kept | {"bayes/own": torch.ones(2)}
    assert from_state("quantiles", state) == Quantiles(1.0, 2.0, 3.0)
    assert all(t.dtype == torch.float64 for t in kept.values())


def test_scores_of_a_softmax_by_hand():
    opinion = of_logits(torch.tensor([[0.0, math.log(3.0)]]), torch.zeros(1, 1))
    assert float(SCORES["msp"](opinion)) == pytest.approx(0.25)
    assert float(SCORES["energy"](opinion)) == pytest.approx(-math.log(4))
    spread = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(SCORES["softmax_entropy"](opinion)) == pytest.approx(spread)
    alpha = torch.tensor([[1.0, 2.0, 5.0]])
    posterior = Opinion(alpha, *(alpha[:, 0],) * 2, alpha, alpha, alpha, torch.tensor([-2.5]))
    assert float(SCORES["max_probability"](posterior)) == pytest.approx(0.375)
    assert float(SCORES["log_density"](posterior)) == 2.5
    assert float(SCORES["expected_pairwise_kl"](posterior)) == pytest.approx(2 / 8)


def test_defaults_are_those_that_are_documented():
    """The paper's shares, and what a user gets who says nothing."""
    usual = RoutingSettings()
    assert (usual.outliers, usual.abstain, usual.strangers) == (0.1, 0.05, 0.02)
    assert (usual.risk, usual.sure, usual.sets, usual.shrinkage) == (0.0, 0.9, 0.0, 0.1)
    assert GaussianRouter() == GaussianRouter(usual.covariance, usual.shrinkage)
