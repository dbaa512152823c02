"""What the report's figures are drawn from: small plain values, kept with the run."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.data.federation import Federation
from fedpn.routing.outcomes import OUTCOMES, Outcome
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import STRANGE, Rule, Scores
from fedpn.routing.standards import reason
from fedpn.runs.evaluate import Answer, View

BINS = 48
POINTS = 101
GALLERY = 4  # pictures of each outcome


def figures(
    federation: Federation, views: list[View], headline: str, classes: int
) -> dict[str, Any]:
    """All figures but the pictures."""
    owned = [np.bincount(federation.labels[rows], minlength=classes) for rows in federation.train]
    tree: dict[str, Any] = {
        "ownership": [counts.tolist() for counts in owned],
        "reliability": _reliability(views, headline),
        "risk_coverage": _risk_coverage(views),
    }
    if all(v.score is not None for v in views):
        tree |= {"histogram": _histogram(views), "outcomes": _outcomes(views)}
    return tree


def _pool(views: list[View], who: str) -> tuple[Answer, Tensor]:
    """All clients' answers to the rows that they are judged by, and the truth."""
    parts = [v.answers[who].take(v.judged) for v in views]
    labels = torch.cat([v.labels[v.judged] for v in views])
    return Answer(*(torch.cat(column) for column in zip(*parts, strict=True))), labels


def _reliability(views: list[View], headline: str) -> dict[str, list[float]]:
    answer, labels = _pool(views, headline)
    names = ("share", "confidence", "accuracy")
    columns = metrics.reliability(answer.probs, labels)
    return {name: column.tolist() for name, column in zip(names, columns, strict=True)}


def _risk_coverage(views: list[View]) -> dict[str, list[float]]:
    curves = {}
    for who in views[0].answers:
        answer, labels = _pool(views, who)
        risk = metrics.risk_coverage(answer.total, answer.label != labels)
        at = np.linspace(0, len(risk) - 1, POINTS).round().astype(int)
        curves[who] = risk[torch.from_numpy(at)].tolist()
    return curves


def _histogram(views: list[View]) -> dict[str, Any] | None:
    """The switch score of the clients that go by one, each relative to its client's threshold."""

    def relative(name: str) -> np.ndarray[Any, Any]:
        parts = [
            v.score[v.sets[name]].double() - _limit(v.rule)
            for v in views
            if v.score is not None and v.rule is not None and _limit(v.rule) > -math.inf
        ]
        return torch.cat(parts).numpy() if parts else np.empty(0)

    scores = {name: relative(name) for name in ("ind", "ood")}
    if not len(scores["ind"]):
        return None
    low = np.quantile(scores["ind"], 0.005)
    high = np.quantile(np.concatenate(list(scores.values())), 0.95)
    edges = np.linspace(low, max(high, low + 1e-9), BINS + 1)
    shares = {
        name: (np.histogram(values.clip(edges[0], edges[-1]), edges)[0] / max(len(values), 1))
        for name, values in scores.items()
    }
    return {"edges": edges.tolist()} | {name: share.tolist() for name, share in shares.items()}


def _limit(rule: Rule) -> float:
    """Above which a score delegates."""
    return rule.epistemic if isinstance(rule, Quantiles) else 0.5


def _outcomes(views: list[View]) -> dict[str, list[list[float]]]:
    """Shares of the four outcomes per client, InD and OOD."""

    def share(view: View, name: str) -> list[float]:
        assert view.decision is not None
        outcome = view.decision.outcome[view.sets[name]]
        counts = torch.bincount(outcome, minlength=len(OUTCOMES)).double()
        return (counts / counts.sum().clamp(min=1)).tolist()

    return {name: [share(v, name) for v in views] for name in ("ind", "ood")}


def gallery(views: list[View], seed: int) -> list[dict[str, Any]]:
    """Some inputs of each outcome, drawn by the seed, with the decision and the reason."""
    rng = seeds.stream("gallery", seed)
    cards = []
    for outcome in Outcome:
        places = [
            (client, int(i))
            for client, v in enumerate(views)
            if v.decision is not None and v.rule is not None
            for i in rng.permutation((v.decision.outcome == outcome).nonzero().squeeze(1).numpy())[
                :2
            ]
        ]
        for pick in rng.permutation(len(places))[:GALLERY]:
            client, i = places[pick]
            cards.append(_card(views[client], client, i, outcome))
    return cards


def _card(view: View, client: int, i: int, outcome: Outcome) -> dict[str, Any]:
    d = view.decision
    assert d is not None
    assert view.rule is not None
    scores = Scores(float(d.epistemic[i]), float(d.aleatoric[i]), float(d.total[i]))
    return {
        "row": int(view.rows[i]),
        "client": client,
        "known": i < len(view.sets["ind"]),
        "label": int(view.labels[i]),
        "answer": int(d.label[i]),
        "confidence": float(d.probs[i].max()),
        "source": outcome.source,
        "outcome": outcome.label,
        "reason": _why(view, i, outcome, scores),
    }


def _why(view: View, i: int, outcome: Outcome, scores: Scores) -> str:
    """As a bundle would tell it."""
    assert view.rule is not None and view.decision is not None and view.held is not None
    probs = view.decision.probs[i]
    broke_down = bool((probs == probs[0]).all())  # then all classes are equally likely
    if outcome is Outcome.STRANGER and not broke_down:
        return STRANGE
    return reason(view.rule, outcome, scores, view.held)
