"""What stands behind an answer: both models' views, the prior, and the limits."""

from typing import Any

from torch import Tensor

from fedpn.routing.bayes import Bayes
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.rule import Decision, Views
from fedpn.serving.predict import Predictor

Tree = dict[str, Any]


def explain(predictor: Predictor, views: Views, decision: Decision) -> list[Tree]:
    """For each input what the client's and the federation's model say, and what decides."""
    bundle = predictor.bundle
    names, rule = bundle.classes, bundle.rule
    prior = None
    if isinstance(rule, Bayes):
        prior = dict(zip(names, rule.own.tolist(), strict=True))
    limits = limits_of(predictor)
    rows = zip(_rows(views.local.probs), _rows(views.shared.probs), strict=True)
    scores = decision.scores()
    return [
        {
            "local": dict(zip(names, local, strict=True)),
            "global": dict(zip(names, shared, strict=True)),
            "prior": prior,
            "own_chance": 1 - score.epistemic if isinstance(rule, Bayes) else None,
            "score": score.epistemic,
            "limits": limits,
        }
        for (local, shared), score in zip(rows, scores, strict=True)
    ]


def limits_of(predictor: Predictor) -> dict[str, float | None]:
    """Above which an input counts as foreign, and answers to own and foreign ones as doubtful."""
    rule, promises = predictor.bundle.rule, predictor.bundle.standards.promises
    limits: dict[str, float | None] = {"foreign": None, "own_doubt": None, "foreign_doubt": None}
    if isinstance(rule, Bayes):
        limits = {"foreign": 0.5, "own_doubt": rule.own_doubt, "foreign_doubt": rule.foreign_doubt}
    elif isinstance(rule, Quantiles):
        limits = {"foreign": rule.epistemic, "own_doubt": rule.aleatoric}
        limits["foreign_doubt"] = rule.total
    if promises is not None:
        limits |= {"own_doubt": promises[0].threshold, "foreign_doubt": promises[1].threshold}
    return {k: v if v is not None and abs(v) < 1e30 else None for k, v in limits.items()}


def _rows(probs: Tensor) -> list[list[float]]:
    rows: list[list[float]] = probs.double().nan_to_num(0.0).tolist()
    return rows
