"""The four outcomes, one row each, and their borders."""

import torch

from fedpn.core.dirichlet import Posterior
from fedpn.routing.scores import POSTERIOR_SCORES, Opinion, of_logits, of_posterior
from fedpn.routing.switch import OUTCOMES, decide, reason
from fedpn.routing.thresholds import Thresholds

LIMITS = Thresholds(epistemic=1.0, aleatoric=0.5, total=0.4)


def _opinions():
    local = Opinion(
        probs=torch.tensor([[0.9, 0.1]]).repeat(5, 1),
        epistemic=torch.tensor([0.0, 0.0, 2.0, 2.0, 1.0]),
        aleatoric=torch.tensor([0.1, 0.9, 0.9, 0.1, 0.5]),
        total=torch.full((5,), 7.0),
    )
    shared = Opinion(
        probs=torch.tensor([[0.2, 0.8]]).repeat(5, 1),
        epistemic=torch.zeros(5),
        aleatoric=torch.full((5,), 9.0),
        total=torch.tensor([0.9, 0.1, 0.1, 0.9, 0.9]),
    )
    return local, shared


def test_the_papers_table_of_outcomes():
    decision = decide(*_opinions(), LIMITS)
    # The last row lies on both borders: a score must exceed its threshold to count as high.
    assert decision.outcome.tolist() == [0, 1, 2, 3, 0]
    assert decision.answered.tolist() == [True, False, True, False, True]
    assert decision.source.tolist() == [0, 0, 1, 1, 0]
    assert decision.label.tolist() == [0, 0, 1, 1, 0]
    torch.testing.assert_close(decision.total, torch.tensor([7.0, 7.0, 0.1, 0.9, 7.0]))


def test_every_outcome_has_a_reason():
    reasons = {reason(name, 1.0, 2.0, 3.0, LIMITS) for name in OUTCOMES}
    assert len(reasons) == 4


def test_scores_are_higher_where_less_is_known():
    probs = torch.tensor([[0.7, 0.2, 0.1]])
    know, wonder = (
        Posterior(1 + e * probs, torch.tensor([e]).log(), torch.tensor([e]).log(), probs)
        for e in (1e4, 1e-2)
    )
    for name in POSTERIOR_SCORES:
        assert of_posterior(wonder, name).epistemic > of_posterior(know, name).epistemic, name


def test_a_softmax_has_one_kind_of_uncertainty():
    logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    opinion = of_logits(logits, epistemic=torch.zeros(2))
    assert torch.equal(opinion.aleatoric, opinion.total)
    assert opinion.total[0] > opinion.total[1]
