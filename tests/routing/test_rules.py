"""The paper's rule: four outcomes, one row each, their borders; thresholds and their promise."""

import numpy as np
import pytest
import torch

from fedpn.core.errors import UserError
from fedpn.routing.bayes import Bayes
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import OUTCOMES, Outcome, Source, answered
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Lesson, Scores, Views
from fedpn.routing.rules import RULES, find_rule, from_state, to_state
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import rows_needed, threshold

LIMITS = Quantiles(epistemic=1.0, aleatoric=0.5, total=0.4)


class Mine(Quantiles):
    """Of one's own."""


def opinion(probs, aleatoric, total):
    """One that says nothing else."""
    nothing = torch.full_like(probs, torch.nan)
    return Opinion(probs, aleatoric, total, logits=nothing, z=nothing)


def views():
    local = opinion(
        probs=torch.tensor([[0.9, 0.1]]).repeat(5, 1),
        aleatoric=torch.tensor([0.1, 0.9, 0.9, 0.1, 0.5]),
        total=torch.full((5,), 7.0),
    )
    shared = opinion(
        probs=torch.tensor([[0.2, 0.8]]).repeat(5, 1),
        aleatoric=torch.full((5,), 9.0),
        total=torch.tensor([0.9, 0.1, 0.1, 0.9, 0.9]),
    )
    return Views(local, shared, score=torch.tensor([0.0, 0.0, 2.0, 2.0, 1.0]))


def test_the_papers_table_of_outcomes():
    decision = LIMITS.decide(views())
    # The last row lies on both borders: a score must exceed its threshold to count as high.
    assert decision.outcome.tolist() == [0, 1, 2, 3, 0]
    assert decision.answered.tolist() == [True, False, True, False, True]
    assert decision.delegated.tolist() == [False, False, True, True, False]
    assert decision.label.tolist() == [0, 0, 1, 1, 0]
    torch.testing.assert_close(decision.total, torch.tensor([7.0, 7.0, 0.1, 0.9, 7.0]))
    assert decision.epistemic.tolist() == [0.0, 0.0, 2.0, 2.0, 1.0]
    assert decision.aleatoric.equal(views().local.aleatoric)


def test_the_last_border_is_the_federations():
    """A total that lies on its threshold is still low, and the federation answers."""
    one = views()
    on = one.shared._replace(total=torch.full((5,), LIMITS.total))
    assert LIMITS.decide(one._replace(shared=on)).outcome.tolist() == [0, 1, 2, 2, 0]


def test_who_answers_in_each_outcome():
    names = ("local_confident", "local_ambiguous", "local_ood", "global_uncertain", "stranger")
    assert names == OUTCOMES
    sources = [outcome.source for outcome in Outcome]
    nobody = Source.NOBODY
    assert sources == [Source.LOCAL, nobody, Source.GLOBAL, nobody, nobody]
    assert [str(source) for source in Source] == ["local", "global", "nobody"]
    assert answered(torch.tensor([3, 2, 0])).tolist() == [False, True, True]


def test_every_outcome_has_a_reason():
    reasons = {LIMITS.reason(outcome, Scores(1.0, 2.0, 3.0)) for outcome in Outcome}
    assert len(reasons) == len(Outcome)


@pytest.mark.parametrize(
    ("n", "share", "rank"),
    [(9, 0.1, 9), (10, 0.1, 10), (19, 0.1, 18), (99, 0.05, 95), (20, 0.3, 15)],
)
def test_takes_the_rank_of_the_rule(n, share, rank):
    scores = torch.from_numpy(np.random.default_rng(0).permutation(n) + 1.0)
    assert threshold(scores, share) == rank


@pytest.mark.parametrize(("share", "least"), [(0.1, 9), (0.05, 19), (0.5, 1), (0.3, 3), (1.0, 1)])
def test_too_few_rows_are_refused_in_words(share, least):
    assert rows_needed(share) == least
    threshold(torch.arange(float(least)), share)
    if least > 1:
        with pytest.raises(UserError, match=f"needs at least {least}"):
            threshold(torch.arange(float(least - 1)), share)


def test_a_new_row_exceeds_it_as_seldom_as_promised():
    rng = np.random.default_rng(0)
    exceeded = [
        rng.normal() > threshold(torch.from_numpy(rng.normal(size=25)), 0.2) for _ in range(4000)
    ]
    assert 0.17 < np.mean(exceeded) <= 0.21


def test_each_threshold_is_by_its_own_model():
    def of(start):
        aleatoric, total = (torch.arange(s, s + 19).double() for s in (start, start + 100))
        return opinion(torch.zeros(19, 2), aleatoric, total)

    seen = Views(of(100), of(1000), score=torch.arange(19).double())
    lesson = Lesson(seen, torch.zeros(19), torch.ones(2))
    found = Quantiles.calibrate(lesson, RoutingSettings(outliers=0.1, abstain=0.05))
    assert found == Quantiles(epistemic=17, aleatoric=118, total=1118)


def test_the_labels_of_calibration_rows_do_not_matter_to_quantiles():
    one = views()
    settings = RoutingSettings(outliers=0.5, abstain=0.5)
    lessons = (Lesson(one, torch.full((5,), k), torch.ones(2)) for k in (0, 1))
    first, second = (Quantiles.calibrate(lesson, settings) for lesson in lessons)
    assert first == second


def test_a_rule_is_kept_to_the_last_bit():
    exact = Quantiles(epistemic=0.1 + 0.2, aleatoric=1e-300, total=-np.pi)
    assert from_state("quantiles", to_state({"quantiles": exact})) == exact
    assert RULES["quantiles"] is Quantiles


def test_a_rule_of_ones_own():
    assert find_rule(f"{__name__}:Mine") is Mine
    for name in ("LIMITS", "Opinion"):
        with pytest.raises(UserError, match="is no class below Rule"):
            find_rule(f"{__name__}:{name}")


def test_a_rule_that_cannot_be_read_is_refused_in_words():
    state = to_state({"quantiles": LIMITS})
    with pytest.raises(UserError, match="'oracle'; choose one of bayes, quantiles"):
        from_state("oracle", state)
    with pytest.raises(UserError, match="cannot be read"):
        from_state("quantiles", {"quantiles/epistemic": state["quantiles/epistemic"]})
    with pytest.raises(UserError, match="cannot be read"):
        from_state("quantiles", state | {"quantiles/total": torch.zeros(2)})
    with pytest.raises(UserError, match="a number that is none"):
        from_state("quantiles", state | {"quantiles/total": torch.tensor(torch.nan)})
    halves = to_state({"bayes": Bayes(torch.ones(2), torch.ones(2), 0.0, 1.0, 1.0)})
    spoilt = {"bayes/own": torch.tensor([0.5, torch.nan])}  # one number is enough
    with pytest.raises(UserError, match="a number that is none"):
        from_state("bayes", halves | spoilt)
    with pytest.raises(UserError, match="did you mean 'quantiles'"):
        find_rule("quantile")
