"""The paper's rule: a switch between two models, by thresholds."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from fedpn.routing.outcomes import Outcome
from fedpn.routing.rule import UNSOUND, Decision, Lesson, Rule, Scores, Views, refuse_unsound
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, never_binds, pooled_threshold, threshold


@dataclass(frozen=True)
class Quantiles(Rule):
    """The paper's rule: three thresholds, above which a score counts as high.

    | epistemic | then                 | outcome                             |
    | --------- | -------------------- | ----------------------------------- |
    | low       | local aleatoric low  | local confident: the client answers |
    | low       | local aleatoric high | local ambiguous: nobody answers     |
    | high      | global total low     | local OOD: the federation answers   |
    | high      | global total high    | global uncertain: nobody answers    |
    """

    epistemic: float
    aleatoric: float
    total: float

    row: ClassVar[str] = "switch"

    @classmethod
    def calibrate(cls, lesson: Lesson, settings: RoutingSettings) -> Self:
        """Takes each threshold by its own model on the client's calibration rows."""
        views = lesson.views
        return cls(
            epistemic=threshold(views.score, settings.outliers),
            aleatoric=threshold(views.local.aleatoric, settings.abstain),
            total=threshold(views.shared.total, settings.abstain),
        )

    @classmethod
    def borrow(cls, lesson: Lesson, settings: RoutingSettings) -> Self | None:
        """A client that cannot know its own inputs sends all of them on to the federation."""
        if lesson.pooled is None:
            return None
        counts, classes = lesson.pooled["shared/doubt"], len(lesson.counts)
        total = pooled_threshold(counts, classes, settings.abstain)
        return cls(epistemic=-math.inf, aleatoric=0.0, total=total)

    def remarks(self, classes: int) -> list[str]:
        said = []
        if self.epistemic == -math.inf:
            said.append(
                "too few calibration rows to tell own inputs from others: the federation's model "
                "answers all"
            )
        elif never_binds(self.aleatoric, classes):
            said.append(
                f"no own input is too ambiguous: {self.aleatoric:.3g} is as doubtful as can be"
            )
        if never_binds(self.total, classes):
            said.append(
                f"no foreign input is too uncertain: {self.total:.3g} is as doubtful as can be"
            )
        return said

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        local, shared, score = views.local, views.shared, views.score
        delegate = score > self.epistemic
        unsure, unclear = shared.total > self.total, local.aleatoric > self.aleatoric
        doubt = (delegate & unsure) | (~delegate & unclear)
        probs = torch.where(delegate[:, None], shared.probs, local.probs)
        return refuse_unsound(
            Decision(
                probs=probs,
                label=probs.argmax(-1),
                outcome=2 * delegate.long() + doubt.long(),
                epistemic=score,
                aleatoric=local.aleatoric,
                total=torch.where(delegate, shared.total, local.total),
            )
        )

    def whose(self, outcome: Outcome, scores: Scores) -> str:
        if self.epistemic == -math.inf:
            return "this client has too few rows to know its own"
        side = "like" if scores.epistemic <= self.epistemic else "unlike"
        return f"scored {side} this client's rows ({compare(scores.epistemic, self.epistemic)})"

    def reason(self, outcome: Outcome, scores: Scores) -> str:
        """Tells in words why.

        >>> Quantiles(4.0, 0.5, 0.5).reason(Outcome.LOCAL_OOD, Scores(9.5, 0.1, 0.2))
        "scored unlike this client's rows (9.5 > 4), and the federation is sure (0.2 ≤ 0.5)"
        """
        if outcome is Outcome.STRANGER:
            return UNSOUND
        how, *compared = {
            Outcome.LOCAL_CONFIDENT: ("and clear", scores.aleatoric, self.aleatoric),
            Outcome.LOCAL_AMBIGUOUS: ("but ambiguous", scores.aleatoric, self.aleatoric),
            Outcome.LOCAL_OOD: ("and the federation is sure", scores.total, self.total),
            Outcome.GLOBAL_UNCERTAIN: ("and the federation is not sure", scores.total, self.total),
        }[outcome]
        return f"{self.whose(outcome, scores)}, {how} ({compare(*compared)})"
