"""Bayes' rule against a table worked out by hand, and shares learned from streams."""

import numpy as np
import pytest
import torch

from fedpn.routing.bayes import Bayes, believe, learn_priors, learn_share
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Lesson, Scores, Views
from fedpn.routing.rules import from_state, to_state
from fedpn.routing.settings import RoutingSettings


def opinion(probs):
    probs = torch.tensor(probs, dtype=torch.float64)
    spread = -(probs * probs.clamp(min=1e-30).log()).sum(-1)
    return Opinion(probs, spread, spread, probs.log(), probs)


OWN, FOREIGN = learn_priors(torch.tensor([3, 1, 0, 0]))


def test_priors_are_the_clients_frequencies_and_the_others():
    assert OWN.tolist() == [0.75, 0.25, 0, 0]
    assert FOREIGN.tolist() == [0, 0, 0.5, 0.5]
    assert learn_priors(torch.tensor([1, 2]))[0].tolist() == [1 / 3, 2 / 3]  # to the last bit


def test_where_nothing_is_foreign_all_is_own():
    """A client with rows of every class answers by its frequencies, and delegates nothing."""
    rule = Bayes(*learn_priors(torch.tensor([3, 1])), 0.0, 9.0, 9.0)
    probs = opinion([[0.5, 0.5], [0.1, 0.9]])
    decision = rule.decide(Views(probs, probs, torch.zeros(2)))
    assert decision.outcome.tolist() == [0, 0]
    expected = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    torch.testing.assert_close(decision.probs, expected)
    assert rule.learn_share(Views(probs, probs, torch.zeros(2))) > 0.7


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_agrees_with_the_joint_table(share):
    """p(y | x) ∝ p_g(y | x)·π(y), π = ρ·π_own + (1 − ρ)·π_foreign, by plain enumeration."""
    rng = np.random.default_rng(0)
    likelihood = rng.dirichlet(np.ones(4), 50)
    shared = opinion(likelihood.tolist())
    belief = believe(Views(shared, shared, torch.zeros(50)), OWN, FOREIGN, 0.0)
    prior = share * OWN.numpy() + (1 - share) * FOREIGN.numpy()
    joint = likelihood * prior
    np.testing.assert_allclose(belief.probs(share), joint / joint.sum(1, keepdims=True))
    own = (likelihood * share * OWN.numpy()).sum(1) / joint.sum(1)
    np.testing.assert_allclose(belief.own_chance(share), own)


@pytest.mark.parametrize(("true", "count"), [(1.0, 50), (0.0, 50), (0.5, 400), (0.8, 400)])
def test_the_share_is_learned_without_labels(true, count):
    rng = np.random.default_rng(1)
    mine = rng.random(count) < true
    odds = torch.from_numpy(np.where(mine, 3.0, -3.0) + rng.normal(size=count))
    assert learn_share(odds) == pytest.approx((mine.sum() + 1) / (count + 2), abs=0.06)


def test_without_inputs_the_share_is_even():
    assert learn_share(torch.tensor([])) == 0.5
    assert 0.5 < learn_share(torch.tensor([4.0])) < 0.7  # one input says little


def views(local, shared, share=0.5):
    return Views(opinion(local), opinion(shared), torch.zeros(len(local)), share)


SETTINGS = RoutingSettings(abstain=0.5)


def test_the_clients_model_has_a_say_only_where_it_is_better():
    labels = torch.tensor([0, 0, 1, 1])
    sure = [[0.98, 0.02, 0, 0], [0.98, 0.02, 0, 0], [0.02, 0.98, 0, 0], [0.02, 0.98, 0, 0]]
    vague = [[0.4, 0.3, 0.2, 0.1]] * 2 + [[0.3, 0.4, 0.2, 0.1]] * 2
    counts = torch.tensor([3, 1, 0, 0])
    better, worse = (views(sure, vague), views(vague, sure))
    assert Bayes.calibrate(Lesson(better, labels, counts), SETTINGS).weight == 1.0
    assert Bayes.calibrate(Lesson(worse, labels, counts), SETTINGS).weight == 0.0


def test_outcomes_follow_from_the_chance_of_being_own():
    rule = Bayes(OWN, FOREIGN, weight=0.0, own_doubt=0.3, foreign_doubt=0.3)
    shared = [
        [0.97, 0.01, 0.01, 0.01],  # own, clear
        [0.30, 0.68, 0.01, 0.01],  # own, not clear
        [0.01, 0.01, 0.97, 0.01],  # foreign, clear
        [0.01, 0.01, 0.49, 0.49],  # foreign, not clear
    ]
    decision = rule.decide(views(shared, shared))
    assert decision.outcome.tolist() == [0, 1, 2, 3]
    assert decision.label.tolist()[:3] == [0, 0, 2]  # its first class is three times as frequent
    for number, *scores in zip(
        decision.outcome.tolist(),
        decision.epistemic.tolist(),
        decision.aleatoric.tolist(),
        decision.total.tolist(),
        strict=True,
    ):
        assert "likely this client's" in rule.reason(Outcome(number), Scores(*scores))
    away = rule.decide(views(shared, shared, share=0.001))
    assert away.outcome.tolist()[2:] == [2, 3]
    assert away.delegated.sum() >= 3


def test_a_rule_survives_its_file():
    rule = Bayes(OWN, FOREIGN, 0.25, 0.1, 0.2)
    again = from_state("bayes", to_state({"bayes": rule}))
    assert (again.weight, again.own_doubt, again.foreign_doubt) == (0.25, 0.1, 0.2)
    assert torch.equal(again.own, OWN)
    assert torch.equal(again.foreign, FOREIGN)


@pytest.mark.parametrize("rule", [Quantiles(1.0, 1.0, 1.0), Bayes(OWN, FOREIGN, 0.5, 1.0, 1.0)])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_where_numbers_are_not_finite_nobody_answers(rule, value):
    good = [[0.7, 0.1, 0.1, 0.1]] * 3
    both = views(good, good)
    broken = both.local.probs.clone()
    broken[1, 0] = value
    spoilt = both._replace(
        local=both.local._replace(probs=broken), score=torch.tensor([0.0, 0.0, value])
    )
    decision = rule.decide(spoilt)
    stranger = int(Outcome.STRANGER)
    assert decision.outcome[1] == stranger
    assert decision.outcome[0] != stranger
    if isinstance(rule, Quantiles):
        assert decision.outcome[2] == stranger
    assert not decision.answered[1]
    assert all(t.isfinite().all() for t in decision if t is not None)
    assert "nobody" in rule.reason(Outcome.STRANGER, Scores(0.0, 0.0, 0.0))
