"""A rule of one's own: the surer of the two models answers, if it is sure enough."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedpn.routing.rule import Decision, Rule
from fedpn.routing.thresholds import threshold


@dataclass(frozen=True)
class Surer(Rule):
    row: ClassVar[str] = "surer"
    needs_router: ClassVar[bool] = False

    doubt: float

    @classmethod
    def calibrate(cls, lesson, settings):
        views = lesson.views
        least = torch.minimum(views.local.total, views.shared.total)
        return cls(threshold(least, settings.abstain))

    def decide(self, views):
        local, shared = views.local, views.shared
        theirs = shared.total < local.total
        probs = torch.where(theirs[:, None], shared.probs, local.probs)
        total = torch.minimum(local.total, shared.total)
        outcome = 2 * theirs.long() + (total > self.doubt).long()
        return Decision(probs, probs.argmax(-1), outcome, total, local.aleatoric, total)

    def reason(self, outcome, scores):
        return f"the surer model has an entropy of {scores.total:.2f}"
