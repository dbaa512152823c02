"""Models and test sets -> metrics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.data.dataset import Array
from fedpn.data.federation import Federation
from fedpn.federated.personalise import Observer, Population, meet
from fedpn.routing.thresholds import Thresholds
from fedpn.routing.scores import Opinion
from fedpn.routing.switch import OUTCOMES, Decision, decide

SETS = ("ind", "ood", "mix")
Tree = dict[str, Any]


class Answer(NamedTuple):
    """What one way of answering says of some rows."""

    probs: Tensor  # [n, K]
    total: Tensor  # [n], the answering model's total uncertainty

    @property
    def label(self) -> Tensor:
        return self.probs.argmax(-1)

    def take(self, index: Tensor) -> "Answer":
        return Answer(self.probs[index], self.total[index])


@dataclass(frozen=True)
class View:
    """One client's answers to its InD rows, then its OOD rows."""

    rows: Array  # [n]
    labels: Tensor  # [n]
    sets: dict[str, Tensor]  # InD, OOD, Mix: places among these rows
    answers: dict[str, Answer]
    epistemic: Tensor  # [n], of the client's model
    decision: Decision | None = None  # where the client has a switch
    thresholds: Thresholds | None = None

    @property
    def judged(self) -> Tensor:
        """What confidence is judged by: Mix, or InD where no row is foreign to the client."""
        return self.sets["mix"] if len(self.sets["mix"]) else self.sets["ind"]


def look(
    federation: Federation,
    people: Population,
    observe: Observer,
    thresholds: list[Thresholds] | None,
    clients: Sequence[int] | None = None,
) -> list[View]:
    """Asks each client's model and the global one for every row of the client's test sets.

    `people` and `thresholds` are those of the given clients, or of all.
    """
    pooled = np.sort(np.concatenate(federation.test))
    everywhere = None if people.shared is None else observe(people.shared, pooled)
    views = []
    for place, client in enumerate(clients or range(federation.clients)):
        known, unknown = federation.ind(client), federation.ood(client)
        rows = np.concatenate([known, unknown])
        own = observe(people.predictor(place), rows)
        shared = None
        if everywhere is not None:
            found = torch.from_numpy(np.searchsorted(pooled, rows))
            shared = Opinion(*(t[found] for t in everywhere))
            own = meet(own, shared, people.own[place])
        sets = {
            "ind": torch.arange(len(known)),
            "ood": torch.arange(len(known), len(rows)),
            "mix": torch.from_numpy(np.flatnonzero(np.isin(rows, federation.mix(client)))),
        }
        mine = None if thresholds is None else thresholds[place]
        views.append(_view(rows, federation.labels, sets, own, shared, mine))
    return views


def _view(
    rows: Array,
    labels: Array,
    sets: dict[str, Tensor],
    own: Opinion,
    shared: Opinion | None,
    thresholds: Thresholds | None,
) -> View:
    mine = Answer(own.probs, own.total)
    answers = {"personal" if thresholds is None else "local": mine}
    decision = None
    if shared is not None:
        answers["global"] = Answer(shared.probs, shared.total)
    if shared is not None and thresholds is not None:
        decision = decide(own, shared, thresholds)
        answers["switch"] = Answer(decision.probs, decision.total)
        # The oracle knows what the client knows.
        known = torch.zeros(len(rows), dtype=torch.bool)
        known[sets["ind"]] = True
        answers["oracle"] = Answer(
            torch.where(known[:, None], own.probs, shared.probs),
            torch.where(known, own.total, shared.total),
        )
    right = torch.from_numpy(labels[rows])
    return View(rows, right, sets, answers, own.epistemic, decision, thresholds)


def client_metrics(view: View, headline: str) -> Tree:
    """The figures of one client; null where it has no rows to tell them from."""
    tree: Tree = {
        "accuracy": {
            who: {
                name: metrics.accuracy(answer.label[place], view.labels[place])
                if len(place)
                else None
                for name, place in view.sets.items()
            }
            for who, answer in view.answers.items()
        }
    }
    ind, ood, judged = view.sets["ind"], view.sets["ood"], view.judged
    if view.decision is not None:
        sent = view.decision.source.double()
        tree["routing"] = {
            "auroc": metrics.auroc(view.epistemic[ind], view.epistemic[ood]) if len(ood) else None,
            "delegated": {
                "ind": float(sent[ind].mean()),
                "ood": float(sent[ood].mean()) if len(ood) else None,
            },
        }
    answer, labels = view.answers[headline].take(judged), view.labels[judged]
    tree["abstention"] = {"aurc": metrics.aurc(answer.total, answer.label != labels)}
    if view.decision is not None:
        outcomes = view.decision.outcome[judged]
        shares = torch.bincount(outcomes, minlength=len(OUTCOMES)).double() / len(judged)
        tree["abstention"] |= {
            "coverage": float(view.decision.answered[judged].double().mean()),
            "outcomes": dict(zip(OUTCOMES, shares.tolist(), strict=True)),
        }
    measures = {"ece": metrics.ece, "nll": metrics.nll, "brier": metrics.brier}
    tree["calibration"] = {n: measure(answer.probs, labels) for n, measure in measures.items()}
    return tree


def summarise(trees: list[Tree], over: Any = np.mean) -> Tree:
    """Brings the figures of many clients (or seeds) to one; those that are null do not count.

    >>> summarise([{"a": {"b": 1.0}}, {"a": {"b": 3.0}}, {"a": {"b": None}}])
    {'a': {'b': 2.0}}
    """
    merged: Tree = {}
    for key, value in trees[0].items():
        column = [tree[key] for tree in trees]
        if isinstance(value, dict):
            merged[key] = summarise(column, over)
        else:
            there = [v for v in column if v is not None]
            merged[key] = float(over(there)) if there else None
    return merged


def standard_error(values: list[float]) -> float:
    """Of a mean over seeds.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, 0.0)
    """
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def evaluate(federation: Federation, views: list[View], headline: str, score: str) -> Tree:
    """The figures of all clients, client-wise: mean, spread, and each one's own."""
    return bring_together(
        [
            about_client(federation, client) | client_metrics(view, headline)
            for client, view in enumerate(views)
        ],
        score,
    )


def about_client(federation: Federation, client: int) -> Tree:
    """What figures of one client begin with."""
    owned = federation.owned(client).tolist()
    return {"client": client, "classes": owned, "rows": len(federation.train[client])}


def bring_together(clients: list[Tree], score: str) -> Tree:
    """Mean and spread of the clients' figures, wherever they were taken."""
    about = ("client", "classes", "rows")
    total = summarise([{k: v for k, v in c.items() if k not in about} for c in clients])
    accuracy = total["accuracy"]
    if "routing" in total:
        mix = {who: row["mix"] for who, row in accuracy.items()}
        gap = None
        if mix["oracle"] is not None:
            gap = metrics.gap_closed(mix["local"], mix["global"], mix["switch"], mix["oracle"])
        total["routing"] = {"score": score} | total["routing"] | {"gap_closed": gap}
    accuracies = [{"accuracy": c["accuracy"]} for c in clients]
    total["spread"] = {
        name: summarise(accuracies, over)["accuracy"]
        for name, over in (("std", np.std), ("worst", np.min))
    }
    total["per_client"] = clients
    return total
