"""Promises that hold from few rows: how often an answer may be wrong, a set may miss the label.

Everything is computed from histograms over a grid fixed in advance, which clients can add up
without showing a row. A promise is about new rows drawn like those of its histogram; it says
nothing of other inputs, nor of one class alone. Where many clients each have a limit of their own,
`client_quantile` gives the limit that all but a few of them, and of clients like them, keep to.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.special import bdtr, bdtrc, betaincinv
from torch import Tensor

from fedpn.core.errors import UserError

Kind = Literal["lac", "aps", "raps"]


class Promise(NamedTuple):
    """Answer what is at most this doubtful; a threshold of −∞ answers nothing."""

    threshold: float
    answered: int  # calibration rows up to the threshold
    wrong: int  # of these
    coverage: float  # the share of calibration rows answered
    bound: float  # on the share of wrong answers, as if the threshold had been given beforehand


NOTHING = Promise(-math.inf, 0, 0, 0.0, 1.0)  # nothing is answered


def grid(top: float, bins: int = 400, both_ends: bool = False) -> Tensor:  # -> [E]
    """About `bins` edges from 0 to `top`: one half evenly spaced, the other ever finer towards 0.

    Entropies of K classes need a top of log K; scores of prediction sets crowd at 0 and 1 and need
    both ends fine. The last edge lies a millionth above the top, where rounding may put a value.
    For log-odds, which are negative too, take `torch.linspace`.

    >>> grid(1.0, bins=6)[:4]
    tensor([0.0000e+00, 1.0000e-12, 1.0000e-06, 3.3333e-01], dtype=torch.float64)
    """
    count = bins // 2
    fine = np.logspace(-12, math.log10(max(top, 1e-12)), count)
    parts = [fine, np.linspace(0, top, count + 1), np.array([top * (1 + 1e-6)])]
    if both_ends:
        parts.append((top - fine).clip(min=0))
    return torch.from_numpy(np.unique(np.concatenate(parts)))


def tally(values: Tensor, wrong: Tensor | None, edges: Tensor) -> Tensor:  # [B] -> [2, E+1]
    """Counts all rows, and the wrong ones, per bin; the tallies of clients add up.

    A bin reaches up to its edge and includes it. The last one holds what lies above all edges, and
    what is not a number.

    >>> tally(torch.tensor([0.0, 0.5, torch.nan]), torch.ones(3).bool(), torch.tensor([0.0, 1.0]))
    tensor([[1, 1, 1],
            [1, 1, 1]])
    """
    edges = edges.double().to(values.device)
    index = torch.searchsorted(edges, values.double().nan_to_num(math.inf, math.inf, -math.inf))
    bad = index[:0] if wrong is None else index[wrong.bool()]
    return torch.stack([torch.bincount(i, minlength=len(edges) + 1) for i in (index, bad)])


def upper_bound(wrong: int, rows: int, sure: float = 0.9) -> float:
    """The largest share of wrong answers that the rows leave possible (Clopper & Pearson, 1934).

    >>> round(upper_bound(wrong=0, rows=22), 3), upper_bound(wrong=0, rows=0)
    (0.099, 1.0)
    """
    return float(betaincinv(wrong + 1, rows - wrong, sure)) if wrong < rows else 1.0


def rows_needed(risk: float, sure: float) -> int:
    """The fewest rows that can keep a promise: so many, and none of them answered wrongly.

    >>> rows_needed(0.05, 0.9), rows_needed(0.1, 0.9)
    (45, 22)
    """
    return max(math.ceil(math.log(1 - sure) / math.log1p(-risk) - 1e-9), 1)


def starts(rows: int, risk: float, spare: float) -> list[int]:
    """The numbers of answered rows at which a walk through the thresholds may start.

    The first suffices to keep the promise if none is wrong, (1−risk)ⁿ ≤ level; each of the others
    is twice the one before. The starts share the chance of error `spare` evenly.

    >>> starts(rows=50, risk=0.1, spare=0.1), starts(rows=200, risk=0.1, spare=0.1)
    ([22], [33, 66, 132])
    """
    found: list[int] = []
    while True:
        first = rows_needed(risk, 1 - spare / (len(found) + 1))
        if found and first << len(found) > rows:
            return found
        found = [first << i for i in range(len(found) + 1)]


def promise(counts: Tensor, edges: Tensor, risk: float, sure: float = 0.9) -> Promise:
    """The loosest threshold up to which at most a share `risk` of answers is wrong.

    Holds with a chance of `sure` over the calibration rows, however few. Of the n rows up to a
    fixed threshold, a Binomial(n, R) number is wrong, R being the true share: the exact tail
    P(Binomial(n, risk) ≤ wrong) tests "R > risk". The thresholds are tested from the strictest to
    the loosest, as in learn-then-test (Angelopoulos et al., 2021): a passed test hands its level
    on to the next one, a failed one loses it (the fallback procedure, Wiens & Dmitrienko, 2005).
    A single start would be thrown by one early mistake; later `starts` get a level of their own.

    Starts are numbers of rows, so their thresholds depend on doubts, though not on labels. That
    alone would not suffice, as the counts below a threshold tell which rows make up its n. It does
    if, past the first threshold that breaks the promise, no bin of further rows is better than
    `risk`, above all if R only grows: whether a start lies below that threshold then depends on
    its n alone, given which the tail is exact, and rows past it only add mistakes. For curves that
    dip later there is no proof, but a search for bad ones found none (tests/core/test_promises).

    The threshold is that of a bin with rows: doubts never met while calibrating are not answered.

    >>> edges, doubt = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.1, 0.2, 0.3])
    >>> doubt, wrong = doubt.repeat_interleave(40), torch.arange(120) >= 80
    >>> [round(x, 3) for x in promise(tally(doubt, wrong, edges), edges, risk=0.1)]
    [0.2, 80, 0, 0.667, 0.028]
    """
    if not (0 < risk < 1 and 0 < sure < 1):
        raise UserError(f"risk {risk:g}, sure {sure:g}: both must lie between 0 and 1")
    rows, wrong = counts.cpu().long().numpy()[:, :-1].cumsum(1)  # [E], above the grid is refused
    total = int(counts[0].sum())
    begin = starts(total, risk, 1 - sure)
    fresh = np.diff(np.searchsorted(begin, rows, "right"), prepend=0) * (1 - sure) / len(begin)
    tail = bdtr(wrong.astype(float), rows, risk)
    filled = np.diff(rows, prepend=0) > 0
    level, last = 0.0, -1
    for i in range(len(rows)):
        level += fresh[i]
        if level == 0 or tail[i] > level:
            level = 0.0
        elif filled[i]:
            last = i
    return promise_at(counts, edges, float(edges[last]) if last >= 0 else -math.inf, sure)


def promise_at(counts: Tensor, edges: Tensor, threshold: float, sure: float) -> Promise:
    """What the rows of a histogram say of a threshold that is given, at one of its edges or −∞.

    >>> promise_at(torch.tensor([[3, 1], [1, 0]]), torch.tensor([0.5]), 0.5, 0.9)[:4]
    (0.5, 3, 1, 0.75)
    """
    if threshold == -math.inf:
        return NOTHING
    inside = edges.double() <= threshold
    n, w = (int(part[:-1][inside].sum()) for part in counts.cpu())
    return Promise(threshold, n, w, n / max(int(counts[0].sum()), 1), upper_bound(w, n, sure))


def refutes(answered: int, wrong: int, risk: float, sure: float) -> bool:
    """Whether rows say that more than `risk` of answers are wrong (exact binomial test).

    >>> refutes(240, 43, 0.1, 0.9), refutes(20, 2, 0.1, 0.9)
    (True, False)
    """
    return wrong > 0 and float(bdtrc(float(wrong - 1), answered, risk)) <= 1 - sure


def observed_limit(counts: Tensor, edges: Tensor, risk: float) -> float:
    """Up to which doubt no larger share than `risk` of the rows was wrong; of few rows, one may be.

    The last edge before the first one at which this fails, so that its negation is monotone.

    >>> counts = torch.tensor([[10, 30, 5, 5], [0, 1, 2, 0]])
    >>> observed_limit(counts, torch.tensor([1.0, 2.0, 3.0]), 0.05)
    2.0
    """
    rows, wrong = counts.double()[:, :-1].cumsum(1)
    fails = (wrong > (risk * rows).clamp(min=1)).nonzero()
    last = int(fails[0]) - 1 if len(fails) else len(edges) - 1
    return float(edges[last]) if last >= 0 else -math.inf


def client_quantile(limits: Sequence[float], sure: float) -> float:
    """The limit that at most a share 1 − `sure` of clients exceed, by limits of n clients.

    The ⌊(n+1)(1−sure)⌋-th smallest: the limit of one more client, exchangeable with the n, lies
    below it with a chance of at most 1 − `sure` (conformal prediction with clients in the place of
    rows, as in Lee, Barber & Willett, 2023). −∞ where there are too few clients to say so.

    >>> client_quantile([0.3, 0.1, 0.2] * 3, sure=0.9), client_quantile([0.3] * 8, sure=0.9)
    (0.1, -inf)
    """
    rank = math.floor((len(limits) + 1) * (1 - sure) + 1e-9)
    return sorted(limits)[rank - 1] if rank else -math.inf


def may_answer(doubt: Tensor, threshold: float) -> Tensor:  # [B] -> [B], bool
    """Which rows the promise covers; never one whose doubt is not a number.

    >>> may_answer(torch.tensor([0.1, 0.9, torch.nan]), 0.5)
    tensor([ True, False, False])
    """
    if threshold == -math.inf:
        return torch.zeros_like(doubt, dtype=torch.bool)
    return doubt.double() <= threshold


def quantile_of(counts: Tensor, edges: Tensor, share: float) -> float:
    """The least edge that at least this share of the rows does not exceed; ∞ if there is none.

    At most one bin above the quantile of the rows themselves, never below it.

    >>> edges = torch.linspace(0, 1, 11)
    >>> round(quantile_of(tally(torch.arange(20) / 20, None, edges), edges, 0.9), 6)
    0.9
    """
    return _ranked(counts, edges, math.ceil(int(counts[0].sum()) * share - 1e-9))


def set_threshold(counts: Tensor, edges: Tensor, miss: float) -> float:
    """The threshold with which the sets of new rows miss the true label at most that often.

    The ⌈(n+1)(1−miss)⌉-th smallest score of the true labels, rounded up to its edge; ∞, which makes
    sets of all classes, if there are too few rows. The share is one over all rows, easy and hard.

    >>> edges = torch.linspace(0, 1, 11)
    >>> round(set_threshold(tally(torch.arange(9) / 10, None, edges), edges, 0.1), 6)
    0.8
    >>> set_threshold(tally(torch.arange(8) / 10, None, edges), edges, 0.1)
    inf
    """
    return _ranked(counts, edges, math.ceil((int(counts[0].sum()) + 1) * (1 - miss) - 1e-9))


def _ranked(counts: Tensor, edges: Tensor, rank: int) -> float:
    """The edge of the bin with the rank-th smallest row; ∞ above the grid or beyond all rows."""
    index = int(torch.searchsorted(counts[0].cpu().cumsum(0), max(rank, 1)))
    return float(edges[index]) if index < len(edges) else math.inf


def class_scores(
    probs: Tensor, kind: Kind, uniform: Tensor | None = None, penalty: float = 0.1, free: int = 1
) -> Tensor:  # [B, K] -> [B, K]
    """How odd each class would be as the answer; calibrate with the column of the true label.

    lac (Sadinle et al., 2019): 1 − p, the smallest sets. aps (Romano et al., 2020): the probability
    of the class and all likelier ones, sets that grow on hard rows; `uniform` numbers [B] count but
    a part of the class's own, without which sets come out larger than they need be. raps
    (Angelopoulos et al., 2021): a penalty for each rank after the `free` ones, so up to
    1 + penalty·(K − free).

    >>> class_scores(torch.tensor([[0.25, 0.5, 0.25]]), "aps")
    tensor([[0.7500, 0.5000, 1.0000]], dtype=torch.float64)
    """
    probs = probs.double() / probs.double().sum(1, keepdim=True)
    if kind == "lac":
        return 1 - probs
    order = probs.argsort(dim=1, descending=True, stable=True)
    ranked = probs.gather(1, order)
    score = ranked.cumsum(1).clamp(max=1)
    if uniform is not None:
        score = score - (1 - uniform.double()[:, None]) * ranked
    if kind == "raps":
        score = score + penalty * (torch.arange(probs.shape[1]).to(order) + 1 - free).clamp(min=0)
    return torch.empty_like(score).scatter_(1, order, score)


def prediction_set(
    probs: Tensor,
    threshold: float,
    kind: Kind,
    uniform: Tensor | None = None,
    penalty: float = 0.1,
    free: int = 1,
) -> Tensor:  # [B, K] -> [B, K], bool
    """The classes in question, the least odd always among them; all if the row has no numbers.

    >>> prediction_set(torch.tensor([[0.6, 0.3, 0.1]]), 0.75, "lac")
    tensor([[ True,  True, False]])
    """
    scores = class_scores(probs, kind, uniform, penalty, free)
    return ~(scores > threshold) | (scores == scores.amin(1, keepdim=True))
