"""The figures of one client, and of all together."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.summary import summarise
from fedpn.data.federation import Federation
from fedpn.reporting.words import some
from fedpn.routing.outcomes import OUTCOMES, Outcome, Source
from fedpn.routing.risk_control import BEYOND_CHANCE, above, broken_words
from fedpn.routing.rule import Decision
from fedpn.routing.standards import Standards
from fedpn.runs.evaluate import View

Tree = dict[str, Any]

MEASURES = {
    "ece": metrics.ece,
    "adaptive_ece": metrics.adaptive_ece,
    "nll": metrics.nll,
    "brier": metrics.brier,
}
ONE_ANSWER, NO_BETTER, LOST = 0.98, 0.005, 0.05


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
    if view.decision is not None and view.score is not None:
        sent = view.decision.delegated.double()
        tree["routing"] = {
            "auroc": metrics.auroc(view.score[ind], view.score[ood]) if len(ood) else None,
            "fpr95": metrics.fpr95(view.score[ind], view.score[ood]) if len(ood) else None,
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
            "right": right_by_source(view.decision.label[judged] == labels, outcomes),
        }
    if view.streams is not None:
        tree["streams"], tree["apart"] = view.streams, view.apart
    tree["classes_found"] = {
        "balanced_accuracy": metrics.balanced_accuracy(answer.label, labels),
        "auroc": metrics.auroc_of_classes(answer.probs, labels),
        "majority_share": metrics.majority_share(labels),
        "always_the_same": metrics.majority_share(answer.label),
    }
    classes, table = answer.probs.shape[1], None
    if classes <= metrics.TABULATED:
        table = metrics.confusion(answer.label, labels, classes).tolist()
    tree["confusion"] = table
    tree["calibration"] = {n: measure(answer.probs, labels) for n, measure in MEASURES.items()}
    if view.held is not None and view.decision is not None:
        tree |= _held_to(view, view.decision, view.held)
    if view.few:
        few = "too few rows to fit a model to (train.least): it answers as the rounds left it"
        tree["remarks"] = [few, *tree.get("remarks", [])]
    if view.copies > 0:
        once = "of its rows repeat others of its own: thresholds and promises count each once"
        tree["remarks"] = [*tree.get("remarks", []), f"{100 * view.copies:.2g} % {once}"]
    return tree


def right_by_source(right: Tensor, outcomes: Tensor) -> Tree:  # [n], [n]
    """How often each who answers is right; nobody's is the share that a guess would be.

    >>> right_by_source(torch.tensor([True, False]), torch.tensor([0, 2]))
    {'local': 1.0, 'global': 0.0, 'nobody': None, 'answered': 0.5}
    """
    sources = [Outcome(number).source for number in outcomes.tolist()]
    places = {
        source.value: torch.tensor([s is source for s in sources], dtype=torch.bool)
        for source in Source
    }
    places["answered"] = ~places[Source.NOBODY]
    return {name: _share(right.cpu()[place]) for name, place in places.items()}


def _held_to(view: View, decision: Decision, held: Standards) -> Tree:
    """Whether answers are what was promised of them; and what there is to remark."""
    wrong, answered = decision.label != view.labels, decision.answered
    tree: Tree = {"remarks": held.remarks()}
    if view.rule is not None:
        tree["remarks"] = [*view.rule.remarks(decision.probs.shape[1]), *tree["remarks"]]
    standing = torch.ones(len(wrong)).bool() if view.standing is None else view.standing
    sides = [("own", view.sets["ind"]), ("foreign", view.sets["ood"])]
    own_and_foreign = [(name, place[standing[place]]) for name, place in sides]
    if held.promises is not None:
        tree["promise"] = {
            name: {
                "answered": float(answered[place].double().mean()) if len(place) else None,
                "wrong": _share(wrong[place][answered[place]]),
                "rows": int(answered[place].sum()),
            }
            for name, place in own_and_foreign
        } | {"risk": float(held.asked[0]), "sure": float(held.asked[1])}
    if decision.classes is not None:
        hit = decision.classes.gather(1, view.labels[:, None])[:, 0]
        tree["sets"] = {
            name: {
                "missed": _share(~hit[place]),
                "size": _share(decision.classes[place].sum(1)),
            }
            for name, place in own_and_foreign
        }
    return tree


def _share(column: Tensor) -> float | None:
    return float(column.double().mean()) if len(column) else None


class Names(NamedTuple):
    """What classes and clients are called, for remarks; numbers where nothing is known."""

    classes: Sequence[str] = ()
    clients: Sequence[str] = ()


def evaluate(
    federation: Federation, views: list[View], headline: str, score: str, names: Names | None = None
) -> Tree:
    """The figures of all clients, client-wise: mean, spread, and each one's own."""
    return bring_together(
        [
            about_client(federation, client) | client_metrics(view, headline)
            for client, view in enumerate(views)
        ],
        score,
        headline,
        names,
    )


def about_client(federation: Federation, client: int) -> Tree:
    """What figures of one client begin with."""
    owned = federation.owned(client).tolist()
    return {"client": client, "classes": owned, "rows": len(federation.train[client])}


def bring_together(
    clients: list[Tree], score: str, headline: str = "switch", names: Names | None = None
) -> Tree:
    """Mean and spread of the clients' figures, wherever they were taken."""
    names = names or Names()
    about = ("client", "classes", "rows", "confusion", "remarks")
    total = summarise([{k: v for k, v in c.items() if k not in about} for c in clients])
    told = [client["confusion"] for client in clients if client.get("confusion") is not None]
    if told:
        total["by_class"] = metrics.by_class(np.sum(told, axis=0))
    accuracy = total["accuracy"]
    if "routing" in total:
        mix = {who: row["mix"] for who, row in accuracy.items()}
        gap = None
        if mix["oracle"] is not None:
            gap = metrics.gap_closed(mix["local"], mix["global"], mix[headline], mix["oracle"])
        total["routing"] = {"score": score} | total["routing"] | {"gap_closed": gap}
    accuracies = [{"accuracy": c["accuracy"]} for c in clients]
    total["spread"] = {
        name: summarise(accuracies, over)["accuracy"]
        for name, over in (("std", np.std), ("worst", np.min))
    }
    mixed = sum(c["accuracy"][headline]["mix"] is not None for c in clients)
    total["judged"] = {"mix": mixed}  # clients to whom some rows are foreign
    whole = accuracy[headline] if 2 * mixed >= len(clients) else accuracy[headline] | {"mix": None}
    total["warnings"] = warnings_of(whole, total["classes_found"])
    total["warnings"] += _lost_classes(total.get("by_class"), names.classes)
    if len(names.classes) > metrics.TABULATED:
        total["warnings"].append(
            f"there are {len(names.classes)} classes, of which no table is made (of at most "
            f"{metrics.TABULATED}): balanced accuracy speaks for all"
        )
    if "promise" in total:
        total["promise"]["clients"] = {side: _kept(clients, side) for side in ("own", "foreign")}
        total["warnings"] += _broken(clients, names.clients)
    total["warnings"] += _remarks(clients, names.clients)
    total["per_client"] = [{k: v for k, v in c.items() if k != "confusion"} for c in clients]
    return total


def warnings_of(accuracy: Tree, found: Tree) -> list[str]:
    """What a fine accuracy may hide: one answer for everything, or no better than that."""
    said = []
    right = accuracy["mix"] if accuracy["mix"] is not None else accuracy["ind"]
    majority, same = found["majority_share"], found["always_the_same"]
    if same > ONE_ANSWER and majority < same:
        said.append(
            f"{100 * same:.1f} % of a client's inputs get one and the same answer, where "
            f"{100 * majority:.1f} % are of the most frequent class: the model may have collapsed"
        )
    if right is not None and right <= majority + NO_BETTER:
        said.append(
            f"answers are right in {100 * right:.1f} %, and always saying the most frequent class "
            f"would be in {100 * majority:.1f} %: rare classes may be lost "
            f"(balanced accuracy {100 * found['balanced_accuracy']:.1f} %)"
        )
    return said


def _lost_classes(by_class: Tree | None, names: Sequence[str]) -> list[str]:
    """Says which classes nobody finds."""
    if by_class is None:
        return []
    pairs = zip(by_class["recall"], by_class["rows"], strict=True)
    lost = [_name(c, names) for c, (found, rows) in enumerate(pairs) if rows and found < LOST]
    return [f"hardly any row is found of the class {some(lost)}"] if lost else []


def _kept(clients: list[Tree], side: str) -> Tree:
    """At how many clients a promise is tested, and at how many of them test rows are above it."""
    tested = [c["promise"] for c in clients if c["promise"][side]["wrong"] is not None]
    return {
        "tested": len(tested),
        "above": sum(above(promise, side) for promise in tested),
        "beyond_chance": sum(above(promise, side, BEYOND_CHANCE) for promise in tested),
    }


def _broken(clients: list[Tree], names: Sequence[str]) -> list[str]:
    """Names the clients at which test rows refute the promise."""
    told = [
        f"client {_name(client['client'], names)} ({'; '.join(words)})"
        for client in clients
        if (words := broken_words(client["promise"]))
    ]
    if not told:
        return []
    risk = clients[0]["promise"]["risk"]
    return [f"the promise of at most {100 * risk:g} % is broken on test rows: {some(told)}"]


def _remarks(clients: list[Tree], names: Sequence[str]) -> list[str]:
    """What there is to remark of clients, each remark once."""
    who: dict[str, list[str]] = {}
    for client in clients:
        for remark in client.get("remarks", ()):
            who.setdefault(remark, []).append(_name(client["client"], names))
    everybody = len(clients)
    return [
        f"{'all clients' if len(found) == everybody > 1 else f'client {some(found)}'}: {text}"
        for text, found in who.items()
    ]


def _name(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)
