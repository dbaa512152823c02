"""Models and test rows -> figures: the last phase, which each client plays for itself."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.core.trees import Params, Slots
from fedpn.data.dataset import Array
from fedpn.data.federation import Federation
from fedpn.data.shift import scrambled
from fedpn.federated.gate import strangers
from fedpn.federated.personal import views_of
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site
from fedpn.routing.bayes import Bayes, entropy
from fedpn.routing.opinion import Opinion
from fedpn.routing.routers import Router
from fedpn.routing.rule import Decision, Rule, Views, refuse_strangers
from fedpn.routing.rules import from_state, kinds_of
from fedpn.routing.standards import Standards, decide, hold, of_state

Tree = dict[str, Any]


class Answer(NamedTuple):
    """What one way of answering says of some rows."""

    probs: Tensor  # [n, K]
    total: Tensor  # [n], the answering model's total uncertainty
    label: Tensor  # [n]

    def take(self, index: Tensor) -> "Answer":
        return Answer(*(t[index] for t in self))


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
    held: Standards | None = None  # what the answers were held to
    standing: Tensor | None = None  # [n], bool: one row of each unit; None: of all rows
    copies: float = 0.0  # the share of the client's training rows that repeat another
    few: bool = False  # whether the client has too few rows for a model of its own

    @property
    def judged(self) -> Tensor:
        """What confidence is judged by: Mix, or InD where no row is foreign to the client."""
        return self.sets["mix"] if len(self.sets["mix"]) else self.sets["ind"]


JUDGED = 1 << 21  # probabilities: of more OOD rows times classes a client is judged by a sample


@dataclass(frozen=True)
class Judge(Phase):
    """Asks each client's model and the global one for every row of the client's test sets."""

    router: Router | None
    rule: str  # of the answers that count; "" where a single model always answers
    least: int = 0  # training rows that a model of one's own takes

    name: ClassVar[str] = "evaluate"
    sums: ClassVar[bool] = False

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        found, federation = self.look(site, memory, sent.get("gate")), site.setup.federation
        told = replace(
            found,
            standing=torch.from_numpy(federation.standing(found.rows)),
            copies=0.0 if site.setup.dataset.groups else federation.copies(site.client),
            few=len(site.train) < self.least,
        )
        return Reply(memory, record=told)

    def look(self, site: Site, memory: Slots, gate: Params | None = None) -> View:
        """The client's answers to its test rows."""
        federation = site.setup.federation
        rows, sets = rows_to_judge(federation, site.client)
        labels = torch.from_numpy(federation.labels[rows])
        held = of_state(memory["standards"])
        if not self.rule:
            return self._plain(site, memory, View(rows, labels, sets, {}, held=held), gate)
        views = views_of(site, self.router, memory, rows)
        rules = {kind: from_state(kind, memory["rule"]) for kind in kinds_of(memory["rule"])}
        bayes = rules["bayes"]
        assert isinstance(bayes, Bayes)
        decisions = {kind: rule.decide(views) for kind, rule in rules.items()}
        decisions[self.rule] = hold(decide(rules[self.rule], views, held), views, held)
        by_rule = {rules[k].row: Answer(d.probs, d.total, d.label) for k, d in decisions.items()}
        shown = views
        if not memory["own"]:  # the client's model is the federation's, under the client's prior
            shown = views._replace(local=under_own_prior(views, bayes))
        answers = answers_of(shown, by_rule, sets["ind"])
        decision = _gated(decisions[self.rule], site, rows, gate)
        standing = torch.from_numpy(federation.standing(rows))
        own_units = {name: place[standing[place]] for name, place in sets.items()}
        found = streams(views, bayes, labels, own_units)
        found["strangers"] = {"refused": _strangers_refused(site, gate)}
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
            held,
        )

    def _plain(self, site: Site, memory: Slots, view: View, gate: Params | None) -> View:
        """The same of a method without a switch: one model always answers."""
        own = site.observer.local(memory["own"], view.rows)
        assert view.held is not None
        views = Views(own, own, own.total)
        decision = hold(decide(None, views, view.held), views, view.held)
        answers = {"personal": Answer(decision.probs, decision.total, decision.label)}
        if site.observer.common is not None:
            shared = site.observer.shared(view.rows)
            answers["global"] = answers["personal"] if not memory["own"] else _answer(shared)
        decision = _gated(decision, site, view.rows, gate)
        return replace(view, answers=answers, decision=decision)

    def _others(self, site: Site, memory: Slots, bayes: Bayes, own: Views) -> Tree:
        """Bayes' rule on other clients' rows, where no class tells them from the client's."""
        rows = site.setup.federation.others(site.client)
        if bayes.foreign.any() or not len(rows):
            return {"accuracy": None, "own_share": None, "auroc": None}
        theirs = views_of(site, self.router, memory, rows)
        odds = [bayes.believe(views).odds for views in (own, theirs)]
        labels = torch.from_numpy(site.setup.federation.labels[rows])
        return _stream(theirs, bayes, labels) | {"auroc": metrics.auroc(-odds[0], -odds[1])}


def _gated(decision: Decision, site: Site, rows: Array, gate: Params | None) -> Decision:
    """Strangers among the rows are answered by nobody, where a run has a gate."""
    if gate is None:
        return decision
    index = torch.from_numpy(rows).to(site.setup.device)
    return refuse_strangers(decision, strangers(site.setup.data.x[index], gate))


SCRAMBLED = 200  # test images whose pixels are shuffled, at most, to test the gate


def _strangers_refused(site: Site, gate: Params | None) -> float | None:
    """The share of the client's test images that the gate refuses once their pixels are shuffled;
    None without a gate, and for rows that are no images."""
    setup = site.setup
    if gate is None or setup.data.x.ndim != 4:
        return None
    rows = torch.from_numpy(setup.federation.ind(site.client)[:SCRAMBLED])
    images = setup.data.x[rows.to(setup.device)].cpu().numpy()
    made = torch.from_numpy(scrambled(images, setup.federation.seed, site.client))
    return float(strangers(made, gate).double().mean())


def rows_to_judge(federation: Federation, client: int) -> tuple[Array, dict[str, Tensor]]:
    """A client's InD rows, then its OOD rows; and where InD, OOD and Mix are among them."""
    known, mixed = federation.ind(client), federation.mix(client)
    unknown = _some(federation, client, federation.ood(client), mixed)
    rows = np.concatenate([known, unknown])
    mix = np.flatnonzero(np.isin(rows, mixed))
    return rows, {
        "ind": torch.arange(len(known)),
        "ood": torch.arange(len(known), len(rows)),
        "mix": torch.from_numpy(mix),
    }


def _some(federation: Federation, client: int, unknown: Array, mixed: Array) -> Array:
    """OOD rows, drawn by the seed where there are very many for so many classes; those of Mix are
    always among them."""
    most = max(JUDGED // federation.counts.shape[1], len(federation.ind(client)))
    if len(unknown) <= most:
        return unknown
    needed = np.isin(unknown, mixed)
    rng = seeds.stream("judged", federation.seed, client)
    more = rng.permutation(unknown[~needed])[: most - int(needed.sum())]
    return np.sort(np.concatenate([unknown[needed], more]))


def under_own_prior(views: Views, bayes: Bayes) -> Opinion:
    """The global model's opinion under the client's prior."""
    own = replace(bayes, weight=0.0).believe(views).own
    doubt = entropy(own)
    return views.shared._replace(probs=own.float(), aleatoric=doubt, total=doubt)


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
        torch.where(is_known, own.label, shared.label),
    )
    return {"local": _answer(own), "global": _answer(shared)} | by_rule | {"oracle": oracle}


def _answer(opinion: Opinion) -> Answer:
    return Answer(opinion.probs, opinion.total, opinion.label)
