"""What a rule of decisions is: from two opinions and a router's score to who answers what.

A rule is a frozen dataclass whose fields, numbers or tensors, are what calibration taught it; they
are kept in a client's slot `rule` and its file of a bundle as they are.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from fedpn.core.trees import Params
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome, answered
from fedpn.routing.settings import RoutingSettings

EVEN = 0.5  # the share of own inputs, before any is seen
UNSOUND = "the models give no finite numbers for it: nobody can answer"
STRANGE = "a stranger: like nothing that the federation has seen, so nobody answers"


class Views(NamedTuple):
    """What there is to decide by: both models' opinions of rows, and the router's score."""

    local: Opinion
    shared: Opinion
    score: Tensor  # [B], higher = less the client's own
    share: float = EVEN  # of own inputs among all
    own_logits: Tensor | None = None  # [B, K], of a client's own head in closed form
    likeness: Tensor | None = None  # [B], log odds that inputs look like the client's

    def take(self, index: Tensor) -> "Views":
        """The same of some of the rows."""
        own, alike = self.own_logits, self.likeness
        return Views(
            self.local.take(index),
            self.shared.take(index),
            self.score[index],
            self.share,
            None if own is None else own[index],
            None if alike is None else alike[index],
        )


class Lesson(NamedTuple):
    """What a client's rule is learned from: held-out rows, and how many it trained on."""

    views: Views
    labels: Tensor  # [B]
    counts: Tensor  # [K], of the client's training rows
    pooled: Params | None = None  # what all clients' held-out rows say together (`pooled`)
    elsewhere: float = 0.0  # the share of rows that other clients have too; below 0: unknown


class Scores(NamedTuple):
    """The numbers behind one row's decision."""

    epistemic: float
    aleatoric: float
    total: float


class Decision(NamedTuple):
    """Who answers, what, and the numbers behind it."""

    probs: Tensor  # [B, K], of whoever answers, or would
    label: Tensor  # [B]
    outcome: Tensor  # [B], numbers of `Outcome`
    epistemic: Tensor  # [B], the router's score
    aleatoric: Tensor  # [B], of the local model
    total: Tensor  # [B], of the answering model
    classes: Tensor | None = None  # [B, K], bool: those in question, where sets were asked for

    def scores(self) -> list[Scores]:
        """The numbers behind each row's decision."""
        columns = (self.epistemic.tolist(), self.aleatoric.tolist(), self.total.tolist())
        return [Scores(e, a, t) for e, a, t in zip(*columns, strict=True)]

    @property
    def delegated(self) -> Tensor:
        """Whether the federation is asked in the client's stead."""
        sent_on = (Outcome.LOCAL_OOD, Outcome.GLOBAL_UNCERTAIN)
        return (self.outcome == sent_on[0]) | (self.outcome == sent_on[1])

    @property
    def answered(self) -> Tensor:
        """Whether somebody answers, rather than nobody."""
        return answered(self.outcome)


def refuse_strangers(decision: Decision, strange: Tensor) -> Decision:
    """Inputs like nothing that the federation has seen are answered by nobody."""
    outcome = torch.where(strange, int(Outcome.STRANGER), decision.outcome)
    return decision._replace(outcome=outcome)


def refuse_unsound(decision: Decision) -> Decision:
    """Where any number is not finite, nobody answers: a model that broke down knows nothing."""
    columns = (decision.probs.sum(-1), decision.epistemic, decision.aleatoric, decision.total)
    sound = torch.stack([column.isfinite() for column in columns]).all(0)
    even = torch.full_like(decision.probs, 1 / decision.probs.shape[-1])
    probs = torch.where(sound[:, None], decision.probs, even)
    most = torch.finfo(torch.float32).max

    def finite(score: Tensor) -> Tensor:
        return torch.nan_to_num(score, nan=most, posinf=most, neginf=-most)

    return Decision(
        probs=probs,
        label=probs.argmax(-1),
        outcome=torch.where(sound, decision.outcome, int(Outcome.STRANGER)),
        epistemic=finite(decision.epistemic),
        aleatoric=finite(decision.aleatoric),
        total=finite(decision.total),
    )


def of_one_model(opinion: Opinion) -> Decision:
    """What a method without a switch decides: its one model answers, where its numbers are finite.

    A softmax cannot tell kinds of doubt apart: 1 − its highest probability stands for epistemic.
    """
    return refuse_unsound(
        Decision(
            probs=opinion.probs,
            label=opinion.label,
            outcome=torch.full_like(opinion.label, int(Outcome.LOCAL_CONFIDENT)),
            epistemic=1 - opinion.probs.amax(-1),
            aleatoric=opinion.aleatoric,
            total=opinion.total,
        )
    )


@dataclass(frozen=True)
class Rule:
    """The template."""

    row: ClassVar[str]  # what figures by this rule are called
    needs_router: ClassVar[bool] = True
    pooled_doubts: ClassVar[str] = "shared"  # whose doubts stand for those of a borrowed rule
    weighs: ClassVar[bool] = False  # whether both models have a say in every answer

    @classmethod
    def calibrate(cls, lesson: Lesson, settings: RoutingSettings) -> Self:
        """Learns a client's rule."""
        raise NotImplementedError

    @classmethod
    def borrow(cls, lesson: Lesson, settings: RoutingSettings) -> Self | None:
        """The rule of a client with too few rows of its own, by what all clients' say together."""
        return None

    def common(self, views: Views) -> tuple["Rule", Views]:
        """The rule, and what it decides by, without what only this client has a say in."""
        return self, views

    def remarks(self, classes: int) -> list[str]:
        """What is odd about a client's thresholds: too few rows, or limits that cannot bind."""
        return []

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        raise NotImplementedError

    def whose(self, outcome: Outcome, scores: Scores) -> str:
        """Whose kind of input it is, in words."""
        foreign = outcome.is_sent_on
        return "taken for another client's" if foreign else "taken for this client's own"

    def reason(self, outcome: Outcome, scores: Scores) -> str:
        """Tells in words why."""
        raise NotImplementedError

    def foreignness(self, epistemic: Tensor, share: Tensor) -> Tensor:
        """How foreign inputs look, whatever share of own ones a decision went by."""
        return epistemic

    def learn_share(self, views: Views, known: Tensor | None = None) -> float:
        """The share of own inputs among unlabelled ones, where a rule goes by it.

        `known`: which of them count; without it all do.
        """
        return EVEN
