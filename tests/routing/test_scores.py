"""Scores: one orientation, and of the model that they are of."""

import pytest
import torch

from fedpn.core import dirichlet
from fedpn.core.dirichlet import Posterior
from fedpn.routing.opinion import join, of_logits, of_posterior
from fedpn.routing.scores import POSTERIOR_SCORES, SCORES, SOFTMAX_SCORES

PROBS = torch.tensor([[0.7, 0.2, 0.1]])


def posterior(evidence):
    log = torch.tensor([evidence]).log()
    return Posterior(1 + evidence * PROBS, log, log, PROBS)


def view(evidence):
    return of_posterior(posterior(evidence), PROBS.log(), torch.zeros(1, 2))


@pytest.mark.parametrize("name", POSTERIOR_SCORES)
def test_scores_are_higher_where_less_is_known(name):
    assert POSTERIOR_SCORES[name](view(1e-2)) > POSTERIOR_SCORES[name](view(1e4))


@pytest.mark.parametrize("name", SOFTMAX_SCORES)
def test_scores_of_a_softmax_are_higher_where_it_is_flatter(name):
    flat, steep = (of_logits(torch.tensor([[k, 0.0, 0.0]]), PROBS) for k in (0.1, 9.0))
    assert SOFTMAX_SCORES[name](flat) > SOFTMAX_SCORES[name](steep)


def test_the_two_entropies_are_of_different_things():
    """Of the Dirichlet, and of the head's softmax, which knows nothing of the evidence."""
    seen, alpha = view(5.0), posterior(5.0).alpha
    assert SCORES["dirichlet_entropy"](seen).equal(dirichlet.entropy(alpha))
    spread = -(PROBS * PROBS.log()).sum(-1)
    torch.testing.assert_close(SCORES["softmax_entropy"](seen), spread)
    assert SCORES["softmax_entropy"](view(5e3)).equal(SCORES["softmax_entropy"](seen))
    assert "entropy" not in SCORES


def test_a_softmax_has_one_kind_of_uncertainty():
    logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    opinion = of_logits(logits, z=torch.zeros(2, 3))
    assert torch.equal(opinion.aleatoric, opinion.total)
    assert opinion.total[0] > opinion.total[1]
    assert opinion.alpha is None
    assert opinion.log_density is None


@pytest.mark.parametrize("kind", ["posterior", "softmax"])
def test_opinions_are_joined_and_taken_row_by_row(kind):
    if kind == "posterior":
        parts = [view(evidence) for evidence in (1.0, 2.0, 3.0)]
    else:
        parts = [
            of_logits(torch.tensor([[k, 0.0]]), torch.full((1, 2), k)) for k in (1.0, 2.0, 3.0)
        ]
    both = join(parts).take(torch.tensor([2, 0]))
    for place, part in enumerate((parts[2], parts[0])):
        for mine, other in zip(both, part, strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine[place].equal(other[0])
