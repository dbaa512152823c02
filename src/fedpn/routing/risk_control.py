"""Risk control: up to which doubt a client may answer so that a promise is kept.

Own inputs are tested on the client's own calibration rows (learn-then-test, `core.promises`). A
client with too few of them takes the limit that all but a few clients with enough keep to: clients
are the exchangeable units, not rows. So it is with foreign inputs, whose limit is that of all but
a few hypothetical clients, drawn like real ones (`routing.pooled`).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import bdtr
from torch import Tensor

from fedpn.core import promises
from fedpn.core.promises import NOTHING, Promise, promise, promise_at, tally
from fedpn.core.trees import Params
from fedpn.routing.outcomes import Outcome
from fedpn.routing.pooled import foreign_limit, lent_limit, receiver_edges
from fedpn.routing.rule import Decision, Lesson, Rule
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import doubt_edges

BEYOND_CHANCE = 0.05  # how rarely a promise that is just kept would look as broken
RISKS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


class Outlook(NamedTuple):
    """What could be promised, where what was asked for cannot; ∞ where there is no such number."""

    risk: float  # the least of `RISKS` that can be promised from these rows
    rows: float  # how many rows like these might suffice for the promise asked for


def outlook(counts: Tensor, edges: Tensor, risk: float, sure: float) -> Outlook:
    """Which risk the rows of a histogram allow, and how many rows the asked one might take.

    >>> counts = tally(torch.zeros(40), torch.arange(40) < 1, torch.tensor([0.0]))
    >>> outlook(counts, torch.tensor([0.0]), risk=0.05, sure=0.9)
    Outlook(risk=0.1, rows=640)
    """
    more = (r for r in RISKS if r > risk)
    least = next((r for r in more if promise(counts, edges, r, sure) != NOTHING), math.inf)
    rows, wrong = counts.cpu().long().numpy()[:, :-1].cumsum(1)
    total, best = int(counts[0].sum()), math.inf
    for times in range(24):  # the same shares of answers and mistakes among twice as many rows
        n = rows * 2**times
        w = np.floor((wrong + 0.5) / (rows + 1) * n)  # half a mistake more, for there are few rows
        if (bdtr(w, n, risk)[rows > 0] <= 1 - sure).any():
            best = total * 2**times
            break
    return Outlook(least, best)


NO_OUTLOOK = Outlook(0.0, 0.0)


def promise_pair(
    rule: Rule | None, decision: Decision, lesson: Lesson, settings: RoutingSettings, lender: str
) -> tuple[tuple[Promise, Promise], tuple[Outlook, Outlook]]:
    """What can be promised of own and of foreign inputs; where nothing can, what could.

    Bayes' rule weighs both models in every answer, so each keeps to the limits for own and for
    foreign inputs; a switch sends foreign inputs on, and these keep to both.
    """
    edges, pooled = doubt_edges(len(lesson.counts)), lesson.pooled
    asked = (settings.risk, settings.sure)
    weighs = rule is not None and rule.weighs
    absent = bool((lesson.counts == 0).any())
    foreign, foreign_hope = _foreign(lesson, *asked)
    limited = (decision.delegated | weighs) & (rule is not None) & (absent or not weighs)
    refused = limited & ~promises.may_answer(decision.total, foreign.threshold)
    refused |= decision.outcome == int(Outcome.STRANGER)
    doubt = torch.where(refused, math.inf, decision.total)
    counts = tally(doubt, decision.label != lesson.labels, edges)
    own = promise(counts, edges, *asked)
    if lender and pooled is not None:
        own = _lent(counts, pooled, lender, edges, *asked)
    own_hope = NO_OUTLOOK
    if own == NOTHING:
        free = tally(decision.total, decision.label != lesson.labels, edges)
        if promise(free, edges, *asked) == NOTHING:  # else foreign inputs are the cause
            own_hope = outlook(free, edges, *asked)
    if rule is None or (weighs and not absent):  # nothing is foreign
        return (own, own), (own_hope, own_hope)
    binds = own.coverage < 1  # where all own rows may be answered, their limit does not bind
    both = min(own.threshold, foreign.threshold) if binds else foreign.threshold
    pair = own._replace(threshold=both) if weighs else own, foreign._replace(threshold=both)
    return pair, (own_hope, foreign_hope)


def _lent(
    own: Tensor, pooled: Params, lender: str, edges: Tensor, risk: float, sure: float
) -> Promise:
    """The limit of other clients; none where the client's own rows show more mistakes below it."""
    votes = pooled.get("limits")
    limit = -math.inf if votes is None else lent_limit(votes, edges, sure)
    if promises.observed_limit(own, edges, risk) < limit:
        return NOTHING
    return promise_at(pooled[f"{lender}/doubt"], edges, limit, sure)


def _foreign(lesson: Lesson, risk: float, sure: float) -> tuple[Promise, Outlook]:
    """What can be promised of foreign inputs, by the counts of all clients' rows."""
    counts = (lesson.pooled or {}).get("foreign")
    if counts is None:
        return NOTHING, NO_OUTLOOK
    classes = len(lesson.counts)
    limit = foreign_limit(counts, classes, risk, sure)
    if limit > -math.inf:
        return promise_at(counts[-1], receiver_edges(classes), limit, sure), NO_OUTLOOK
    tries = (r for r in RISKS if r > risk)
    least = next(
        (r for r in tries if foreign_limit(counts, classes, r, sure) > -math.inf), math.inf
    )
    return NOTHING, Outlook(least, math.inf)


def above(promise: Mapping[str, Any], side: str, chance: float = 1.0) -> bool:
    """Whether more of a client's answered test rows are wrong than was promised.

    With a `chance` below 1: by so many that a promise that is just kept has so many more seldom.

    >>> told = {"risk": 0.1, "own": {"wrong": 43 / 240, "rows": 240}, "foreign": {"wrong": None}}
    >>> above(told, "own", 0.05), above(told, "foreign")
    (True, False)
    """
    share = promise[side]["wrong"]
    if share is None or share <= promise["risk"]:
        return False
    rows = promise[side]["rows"]
    return promises.refutes(rows, round(share * rows), promise["risk"], 1 - chance)


def broken_words(promise: Mapping[str, Any]) -> list[str]:
    """What test rows say of a promise that they refute, for each kind of inputs.

    >>> told = {"risk": 0.1, "own": {"wrong": 43 / 240, "rows": 240}, "foreign": {"wrong": None}}
    >>> broken_words(told)
    ['17.9 % of 240 answers to own inputs are wrong']
    """
    return [
        f"{100 * promise[side]['wrong']:.1f} % of {promise[side]['rows']} answers to {side} inputs "
        "are wrong"
        for side in ("own", "foreign")
        if above(promise, side, BEYOND_CHANCE)
    ]
