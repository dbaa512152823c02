"""Models and test rows -> figures: the last phase, which each client plays for itself."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.summary import summarise
from fedpn.core.trees import Params, Slots
from fedpn.data.dataset import Array
from fedpn.data.federation import Federation
from fedpn.federated.gate import strangers
from fedpn.federated.personal import views_of
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site
from fedpn.routing.bayes import Bayes, entropy
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import OUTCOMES
from fedpn.routing.routers import Router
from fedpn.routing.rule import Decision, Rule, Views, refuse_strangers
from fedpn.routing.rules import from_state, kinds_of

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
    score: Tensor | None = None  # [n], the router's, where the client has a switch
    decision: Decision | None = None
    rule: Rule | None = None
    streams: Tree | None = None  # Bayes' rule, its share learned from the rows of a set
    apart: Tree | None = None  # what Bayes' rule tells the client's inputs from others' by

    @property
    def judged(self) -> Tensor:
        """What confidence is judged by: Mix, or InD where no row is foreign to the client."""
        return self.sets["mix"] if len(self.sets["mix"]) else self.sets["ind"]


@dataclass(frozen=True)
class Judge(Phase):
    """Asks each client's model and the global one for every row of the client's test sets."""

    router: Router | None
    rule: str  # of the answers that count; "" where a single model always answers

    name: ClassVar[str] = "evaluate"
    sums: ClassVar[bool] = False

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        return Reply(memory, record=self.look(site, memory, sent.get("gate")))

    def look(self, site: Site, memory: Slots, gate: Params | None = None) -> View:
        """The client's answers to its test rows."""
        federation = site.setup.federation
        rows, sets = rows_to_judge(federation, site.client)
        labels = torch.from_numpy(federation.labels[rows])
        if not self.rule:
            own = site.observer.local(memory["own"], rows)
            answers = {"personal": Answer(own.probs, own.total)}
            if site.observer.common is not None:
                shared = site.observer.shared(rows)
                answers["global"] = Answer(shared.probs, shared.total)
            return View(rows, labels, sets, answers)
        views = views_of(site, self.router, memory, rows)
        rules = {kind: from_state(kind, memory["rule"]) for kind in kinds_of(memory["rule"])}
        bayes = rules["bayes"]
        assert isinstance(bayes, Bayes)
        decisions = {kind: rule.decide(views) for kind, rule in rules.items()}
        by_rule = {rules[kind].row: Answer(d.probs, d.total) for kind, d in decisions.items()}
        shown = views
        if not memory["own"]:  # the client's model is the federation's, under the client's prior
            shown = views._replace(local=under_own_prior(views, bayes))
        answers = answers_of(shown, by_rule, sets["ind"])
        decision = decisions[self.rule]
        if gate is not None:
            index = torch.from_numpy(rows).to(site.setup.device)
            strange = strangers(site.setup.data.x[index], gate)
            decision = refuse_strangers(decision, strange)
        found = streams(views, bayes, labels, sets)
        found["others"] = self._others(site, memory, bayes, views.take(sets["ind"]))
        return View(
            rows,
            labels,
            sets,
            answers,
            decision.epistemic,
            decision,
            rules[self.rule],
            found,
            told_apart_by(bayes, memory),
        )

    def _others(self, site: Site, memory: Slots, bayes: Bayes, own: Views) -> Tree:
        """Bayes' rule on other clients' rows, where no class tells them from the client's."""
        rows = site.setup.federation.others(site.client)
        if bayes.foreign.any() or not len(rows):
            return {"accuracy": None, "own_share": None, "auroc": None}
        theirs = views_of(site, self.router, memory, rows)
        odds = [bayes.believe(views).odds for views in (own, theirs)]
        labels = torch.from_numpy(site.setup.federation.labels[rows])
        return _stream(theirs, bayes, labels) | {"auroc": metrics.auroc(-odds[0], -odds[1])}


def rows_to_judge(federation: Federation, client: int) -> tuple[Array, dict[str, Tensor]]:
    """A client's InD rows, then its OOD rows; and where InD, OOD and Mix are among them."""
    known, unknown = federation.ind(client), federation.ood(client)
    rows = np.concatenate([known, unknown])
    mix = np.flatnonzero(np.isin(rows, federation.mix(client)))
    return rows, {
        "ind": torch.arange(len(known)),
        "ood": torch.arange(len(known), len(rows)),
        "mix": torch.from_numpy(mix),
    }


def under_own_prior(views: Views, bayes: Bayes) -> Opinion:
    """The global model's opinion under the client's prior."""
    own = replace(bayes, weight=0.0).believe(views).own
    doubt = entropy(own)
    return views.shared._replace(probs=own.float(), aleatoric=doubt, total=doubt)


ONE_ANSWER, NO_BETTER = 0.98, 0.005
STREAMS = {"own": "ind", "foreign": "ood", "mixed": "mix"}


def streams(views: Views, bayes: Bayes, labels: Tensor, sets: dict[str, Tensor]) -> Tree:
    """Bayes' rule on own, foreign and mixed inputs, whose share it learns without labels."""
    found: Tree = {}
    for name, kind in STREAMS.items():
        place = sets[kind]
        found[name] = {"accuracy": None, "own_share": None}
        if len(place):
            found[name] = _stream(views.take(place), bayes, labels[place])
    return found


def _stream(views: Views, bayes: Bayes, labels: Tensor) -> Tree:
    share = bayes.learn_share(views)
    guess = bayes.believe(views).probs(share).argmax(-1)
    return {"accuracy": metrics.accuracy(guess, labels), "own_share": share}


def told_apart_by(bayes: Bayes, memory: Slots) -> Tree:
    """What Bayes' rule goes by at a client; means over clients are shares of them."""
    head = memory.get("head", {})
    return {
        "classes": float(bayes.foreign.any()),
        "looks": float("direction" in head),
        "own_head": float("matrix" in head),
        "own_model": bayes.weight,
    }


def answers_of(views: Views, by_rule: dict[str, Answer], known: Tensor) -> dict[str, Answer]:
    """All ways of answering side by side; the oracle knows which rows the client knows."""
    own, shared = views.local, views.shared
    is_known = torch.zeros(len(own.probs), dtype=torch.bool)
    is_known[known] = True
    oracle = Answer(
        torch.where(is_known[:, None], own.probs, shared.probs),
        torch.where(is_known, own.total, shared.total),
    )
    return {"local": _answer(own), "global": _answer(shared)} | by_rule | {"oracle": oracle}


def _answer(opinion: Opinion) -> Answer:
    return Answer(opinion.probs, opinion.total)


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
    if view.streams is not None:
        tree["streams"], tree["apart"] = view.streams, view.apart
    tree["classes_found"] = {
        "balanced_accuracy": metrics.balanced_accuracy(answer.label, labels),
        "majority_share": metrics.majority_share(labels),
        "always_the_same": metrics.majority_share(answer.label),
    }
    measures = {"ece": metrics.ece, "nll": metrics.nll, "brier": metrics.brier}
    tree["calibration"] = {n: measure(answer.probs, labels) for n, measure in measures.items()}
    return tree


def evaluate(federation: Federation, views: list[View], headline: str, score: str) -> Tree:
    """The figures of all clients, client-wise: mean, spread, and each one's own."""
    return bring_together(
        [
            about_client(federation, client) | client_metrics(view, headline)
            for client, view in enumerate(views)
        ],
        score,
        headline,
    )


def about_client(federation: Federation, client: int) -> Tree:
    """What figures of one client begin with."""
    owned = federation.owned(client).tolist()
    return {"client": client, "classes": owned, "rows": len(federation.train[client])}


def bring_together(clients: list[Tree], score: str, headline: str = "switch") -> Tree:
    """Mean and spread of the clients' figures, wherever they were taken."""
    about = ("client", "classes", "rows")
    total = summarise([{k: v for k, v in c.items() if k not in about} for c in clients])
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
    total["warnings"] = warnings_of(accuracy[headline], total["classes_found"])
    total["per_client"] = clients
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
