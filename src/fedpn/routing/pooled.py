"""Counts of all clients' held-out rows, which add up and show no single row.

The federation's model answers the rows, and Bayes' rule under each client's prior. From the counts
come thresholds for clients with few rows, and promises about inputs that are foreign to a client.
Rows are not counted by class, so that the counts do not tell which classes a client has; instead
each client tests the same hypothetical clients, drawn like real ones, to whom its rows are foreign.
"""

import math

import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.promises import (
    Kind,
    class_scores,
    client_quantile,
    grid,
    observed_limit,
    promise,
    tally,
)
from fedpn.core.trees import Params
from fedpn.routing.bayes import believe, entropy, learn_priors
from fedpn.routing.opinion import Opinion
from fedpn.routing.rule import EVEN, Views
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import doubt_edges

RECEIVERS = 40  # hypothetical clients: of 40 limits, four may be below the one that is taken
CELLS = 2_000_000  # probabilities that are in memory at once
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
    return -metrics.tempered(logs, labels, TEMPERATURES.tolist()).sum(0)


def one_mistake(probs: Tensor) -> Tensor:  # [B, K] -> [T]
    """The same of one row more, an average one, on which the next best class is right.

    Where all of a few rows are answered rightly, likelihood alone would sharpen without end; n of n
    does not say that the next will be right as well (Platt, 1999, has the same in his targets).
    """
    next_best = probs.topk(2, dim=-1).indices[:, 1]
    return losses_by_temperature(probs, next_best) / max(len(probs), 1)


def receivers(classes: int, count: int = RECEIVERS) -> Tensor:  # [R, K]
    """Hypothetical clients, each an order of the classes, of which a client has the first few.

    They are drawn once for all, so that every client tests the same ones and their counts add up.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.stack([torch.randperm(classes, generator=generator) for _ in range(count)])


def receiver_priors(counts: Tensor, orders: Tensor) -> Tensor:  # [K], [R, K] -> [R, K]
    """π_own of hypothetical clients with as many classes as this one, in the same shares.

    >>> receiver_priors(torch.tensor([6, 0, 0, 2]), torch.tensor([[0, 1, 2, 3], [2, 1, 0, 3]]))
    tensor([[0.7500, 0.2500, 0.0000, 0.0000],
            [0.0000, 0.2500, 0.7500, 0.0000]], dtype=torch.float64)
    """
    shares = counts[counts > 0].double().sort(descending=True).values[: len(counts) - 1]
    own = torch.zeros(orders.shape, dtype=torch.float64)
    return own.scatter_(1, orders[:, : len(shares)], (shares / shares.sum()).expand(len(own), -1))


def receiver_edges(classes: int) -> Tensor:  # [E]
    """The grid of doubts for hypothetical clients, coarser than `doubt_edges`: there are many."""
    return grid(math.log(classes), bins=80)


def count_foreign(
    shared: Opinion, labels: Tensor, counts: Tensor, weighs: bool
) -> Tensor:  # -> [R+1, 2, E+1]
    """Doubts and mistakes on rows that are foreign to each hypothetical client; in the last place
    those of every row once, as one of these clients in turn has it.

    Under Bayes' rule, which `weighs`, a row is answered under that client's prior at an even share
    of own inputs; under a switch the federation's model answers it.
    """
    classes = len(counts)
    own = receiver_priors(counts, receivers(classes))
    absent = own == 0
    weights = own + absent / absent.sum(1, keepdim=True) if weighs else torch.ones_like(own)
    edges = receiver_edges(classes)
    found = torch.zeros(len(own) + 1, 2, len(edges) + 1, dtype=torch.float64)
    step = max(CELLS // weights.numel(), 1)
    for begin in range(0, len(labels), step):
        rows = torch.arange(begin, min(begin + step, len(labels)))
        y = labels[rows]
        probs = shared.probs[rows].double() * weights[:, None]  # [R, B, K]
        probs = probs / probs.sum(2, keepdim=True)
        doubt = entropy(probs) if weighs else shared.total[rows].expand(len(own), -1)
        wrong, foreign = probs.argmax(-1) != y, absent[:, y]
        for r, theirs in enumerate(foreign):
            found[r] += tally(doubt[r, theirs], wrong[r, theirs], edges)
        turn = (rows + torch.arange(len(own))[:, None]) % len(own)
        one = torch.where(foreign, turn, -1).argmax(0)[None]
        there = foreign.any(0)
        found[-1] += tally(doubt.gather(0, one)[0, there], wrong.gather(0, one)[0, there], edges)
    return found


def foreign_limit(counts: Tensor, classes: int, risk: float, sure: float) -> float:
    """Up to which doubt foreign inputs may be answered: on the average of hypothetical clients by
    an exact test, and at all but a few of them by what was observed."""
    edges = receiver_edges(classes)
    average = promise(counts[-1], edges, risk, sure).threshold
    each = [observed_limit(part, edges, risk) for part in counts[:-1]]
    return min(average, client_quantile(each, sure))


def count_rows(
    shared: Opinion, labels: Tensor, counts: Tensor, settings: RoutingSettings, weighs: bool
) -> Params:
    """A client's counts, by its training rows of each class, [K], and its held-out rows.

    Doubts and mistakes of the federation's model, and of Bayes' rule under the client's prior; and
    on inputs that are foreign to hypothetical clients, by whichever rule counts. Where something is
    promised, `limits` has a vote: up to which doubt this client was seen to keep it.
    """
    classes, kind = len(counts), settings.set_kind
    doubts, odds = doubt_edges(classes), odd_edges(kind, classes)
    wrong = shared.label != labels
    odd = true_scores(shared.probs, labels, kind)
    views = Views(shared, shared, shared.total)
    mixed = believe(views, *learn_priors(counts), 0.0).probs(EVEN)
    found = {
        "shared/doubt": tally(shared.total, wrong, doubts),
        "shared/odd": tally(odd, None, odds),
        "shared/heat": losses_by_temperature(shared.probs, labels),
        "bayes/doubt": tally(entropy(mixed), mixed.argmax(-1) != labels, doubts),
        "bayes/odd": tally(true_scores(mixed, labels, kind), None, odds),
        "bayes/heat": losses_by_temperature(mixed, labels),
        "foreign": count_foreign(shared, labels, counts, weighs),
    }
    if settings.risk:
        own = found["bayes/doubt" if weighs else "shared/doubt"]
        found["limits"] = _vote(own, doubts, settings)
    return found


def _vote(counts: Tensor, edges: Tensor, settings: RoutingSettings) -> Tensor:  # [E+1]
    """One at the client's limit, the first place that of none at all; zeros where a single mistake
    among its rows would be more than is promised."""
    vote = torch.zeros(len(edges) + 1, dtype=torch.float64)
    if int(counts[0].sum()) * settings.risk >= 1 - 1e-9:
        limit = observed_limit(counts, edges, settings.risk)
        vote[int((edges <= limit).sum())] = 1
    return vote


def lent_limit(votes: Tensor, edges: Tensor, sure: float) -> float:
    """The limit that is lent to clients with too few rows, by the votes of those with enough."""
    limits = torch.cat([torch.tensor([-math.inf], dtype=torch.float64), edges])
    return client_quantile(limits.repeat_interleave(votes.round().long()).tolist(), sure)


def cooled(probs: Tensor, temperature: Tensor) -> Tensor:  # [B, K], [B] -> [B, K]
    """Probabilities, flattened where the temperature is above 1 and sharpened where below.

    >>> cooled(torch.tensor([[0.9, 0.1]]), torch.tensor([2.0]))
    tensor([[0.7500, 0.2500]])
    """
    logs = probs.double().clamp(min=math.exp(-700)).log() / temperature.double()[:, None]
    return logs.softmax(-1).to(probs.dtype)
