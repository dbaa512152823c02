"""The paper's rule: a switch between two models, by thresholds."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from fedpn.routing.outcomes import Outcome
from fedpn.routing.rule import UNSOUND, Decision, Lesson, Rule, Scores, Views, refuse_unsound
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, threshold


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

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        local, shared, score = views.local, views.shared, views.score
        delegate = score > self.epistemic
        doubt = torch.where(delegate, shared.total > self.total, local.aleatoric > self.aleatoric)
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

    def reason(self, outcome: Outcome, scores: Scores) -> str:
        """Tells in words why.

        >>> Quantiles(4.0, 0.5, 0.5).reason(Outcome.LOCAL_OOD, Scores(9.5, 0.1, 0.2))
        'unlike the data of this client (9.5 > 4), familiar to the federation (0.2 ≤ 0.5)'
        """
        known = f"like the data of this client ({compare(scores.epistemic, self.epistemic)})"
        strange = f"unlike the data of this client ({compare(scores.epistemic, self.epistemic)})"
        clear = f"({compare(scores.aleatoric, self.aleatoric)})"
        sure = f"({compare(scores.total, self.total)})"
        return {
            Outcome.LOCAL_CONFIDENT: f"{known}, and clear {clear}",
            Outcome.LOCAL_AMBIGUOUS: f"{known}, but ambiguous {clear}",
            Outcome.LOCAL_OOD: f"{strange}, familiar to the federation {sure}",
            Outcome.GLOBAL_UNCERTAIN: f"{strange}, and doubtful to all {sure}",
            Outcome.STRANGER: UNSOUND,
        }[outcome]
