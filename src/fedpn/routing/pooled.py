"""What all clients' held-out rows say together: counts that add up, of which no row can be told.

The federation's model is asked about the rows, and Bayes' rule under each client's prior. From
these counts come thresholds for clients with few rows, and promises about inputs that are foreign
to a client. They are not counted by class: which classes a client has is its own affair.
"""

import math

import torch
from torch import Tensor

from fedpn.core.promises import Kind, class_scores, grid, tally
from fedpn.core.trees import Params
from fedpn.routing.bayes import believe, entropy, learn_priors
from fedpn.routing.opinion import Opinion
from fedpn.routing.rule import EVEN, Views
from fedpn.routing.thresholds import doubt_edges

TEMPERATURES = torch.logspace(-1, 1, 61, dtype=torch.float64)  # the middle one changes nothing


def odd_edges(kind: Kind, classes: int) -> Tensor:
    """The grid of scores by which sets of classes are made."""
    return grid(1.0 if kind != "raps" else 1.0 + 0.1 * classes, both_ends=True)


def true_scores(probs: Tensor, labels: Tensor, kind: Kind) -> Tensor:  # [B, K], [B] -> [B]
    """How odd the true class is as an answer."""
    return class_scores(probs, kind).gather(1, labels[:, None])[:, 0]


def losses_by_temperature(probs: Tensor, labels: Tensor) -> Tensor:  # -> [T]
    """Σ −log p(true class) where probabilities are flattened or sharpened, for each temperature."""
    logs = probs.double().clamp(min=torch.finfo(torch.float32).tiny).log()
    scaled = logs[None] / TEMPERATURES[:, None, None]
    true = labels[None, :, None].expand(len(TEMPERATURES), -1, 1)
    return -scaled.log_softmax(-1).gather(2, true).sum((1, 2))


def one_mistake(probs: Tensor) -> Tensor:  # [B, K] -> [T]
    """The same of one row more, an average one, on which the next best class is right.

    Where all of a few rows are answered rightly, likelihood alone would sharpen without end; n of n
    does not say that the next will be right as well (Platt, 1999, has the same in his targets).
    """
    next_best = probs.topk(2, dim=-1).indices[:, 1]
    return losses_by_temperature(probs, next_best) / max(len(probs), 1)


def as_foreign(labels: Tensor, counts: Tensor) -> Tensor:  # [B], [K] -> [B, K]
    """For each row π_own of a client to whom it would be foreign: with as many classes as this one,
    in the same shares, taken in turn from those that the row is not of.

    >>> as_foreign(torch.tensor([0, 0]), torch.tensor([6, 0, 0, 2]))
    tensor([[0.0000, 0.7500, 0.2500, 0.0000],
            [0.0000, 0.0000, 0.7500, 0.2500]], dtype=torch.float64)
    """
    classes = len(counts)
    shares = counts[counts > 0].double().sort(descending=True).values[: classes - 1]
    turn = torch.arange(len(labels))[:, None] + torch.arange(len(shares))
    picked = (labels[:, None] + 1 + turn % (classes - 1)) % classes
    own = torch.zeros(len(labels), classes, dtype=torch.float64)
    return own.scatter_(1, picked, (shares / shares.sum()).expand(len(labels), -1))


def _foreign_probs(shared: Opinion, labels: Tensor, counts: Tensor) -> Tensor:  # [B, K]
    """What Bayes' rule says of rows to clients to whom they are foreign, at an even share."""
    own = as_foreign(labels, counts)
    absent = (own == 0).double()
    weighed = shared.probs.double() * (own + absent / absent.sum(1, keepdim=True))
    return weighed / weighed.sum(1, keepdim=True)


def count_rows(shared: Opinion, labels: Tensor, counts: Tensor, kind: Kind) -> Params:
    """A client's counts, by its training rows of each class, [K], and its held-out rows.

    Doubts and mistakes of the federation's model; the same of Bayes' rule under the
    client's prior, and under that of a client to whom the rows would be foreign.
    """
    classes = len(counts)
    doubts, odds = doubt_edges(classes), odd_edges(kind, classes)
    wrong = shared.label != labels
    odd = true_scores(shared.probs, labels, kind)
    views = Views(shared, shared, shared.total)
    mixed = believe(views, *learn_priors(counts), 0.0).probs(EVEN)
    foreign = _foreign_probs(shared, labels, counts)
    return {
        "shared/doubt": tally(shared.total, wrong, doubts),
        "shared/odd": tally(odd, None, odds),
        "shared/heat": losses_by_temperature(shared.probs, labels),
        "bayes/doubt": tally(entropy(mixed), mixed.argmax(-1) != labels, doubts),
        "bayes/foreign": tally(entropy(foreign), foreign.argmax(-1) != labels, doubts),
        "bayes/odd": tally(true_scores(mixed, labels, kind), None, odds),
        "bayes/heat": losses_by_temperature(mixed, labels),
    }


def cooled(probs: Tensor, temperature: Tensor) -> Tensor:  # [B, K], [B] -> [B, K]
    """Probabilities, flattened where the temperature is above 1 and sharpened where below.

    >>> cooled(torch.tensor([[0.9, 0.1]]), torch.tensor([2.0]))
    tensor([[0.7500, 0.2500]])
    """
    logs = probs.double().clamp(min=math.exp(-700)).log() / temperature.double()[:, None]
    return logs.softmax(-1).to(probs.dtype)
