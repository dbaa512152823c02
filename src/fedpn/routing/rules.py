"""Rules: from two opinions and a router's score to a decision, by what calibration rows taught.

A calibrator takes opinions of held-out rows and returns a rule; a rule is a frozen dataclass of
plain values, kept in a bundle as they are.
"""

import math
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.core.settings import one_of
from fedpn.core.trees import Params
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome, answered
from fedpn.routing.settings import RoutingSettings


class Views(NamedTuple):
    """What there is to decide by: both models' opinions of rows, and the router's score."""

    local: Opinion
    shared: Opinion
    score: Tensor  # [B]


class Decision(NamedTuple):
    """Who answers, what, and the numbers behind it."""

    probs: Tensor  # [B, K], of whoever answers, or would
    label: Tensor  # [B]
    outcome: Tensor  # [B], numbers of `Outcome`
    epistemic: Tensor  # [B], the router's score
    aleatoric: Tensor  # [B], of the local model
    total: Tensor  # [B], of the answering model

    @property
    def delegated(self) -> Tensor:
        """Whether the federation is asked in the client's stead."""
        asked = torch.tensor([Outcome.LOCAL_OOD, Outcome.GLOBAL_UNCERTAIN])
        return torch.isin(self.outcome, asked.to(self.outcome.device))

    @property
    def answered(self) -> Tensor:
        """Whether somebody answers, rather than nobody."""
        return answered(self.outcome)


@dataclass(frozen=True)
class Quantiles:
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

    kind: ClassVar[str] = "quantiles"

    @classmethod
    def calibrate(cls, views: Views, labels: Tensor, settings: RoutingSettings) -> "Quantiles":
        """Takes each threshold by its own model on the client's calibration rows."""
        return cls(
            epistemic=threshold(views.score, settings.outliers),
            aleatoric=threshold(views.local.aleatoric, settings.abstain),
            total=threshold(views.shared.total, settings.abstain),
        )

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        local, shared, score = views
        delegate = score > self.epistemic
        doubt = torch.where(delegate, shared.total > self.total, local.aleatoric > self.aleatoric)
        probs = torch.where(delegate[:, None], shared.probs, local.probs)
        return Decision(
            probs=probs,
            label=probs.argmax(-1),
            outcome=2 * delegate.long() + doubt.long(),
            epistemic=score,
            aleatoric=local.aleatoric,
            total=torch.where(delegate, shared.total, local.total),
        )

    def reason(self, outcome: Outcome, epistemic: float, aleatoric: float, total: float) -> str:
        """Tells in words why.

        >>> Quantiles(4.0, 0.5, 0.5).reason(Outcome.LOCAL_OOD, 9.5, 0.1, 0.2)
        'unlike the data of this client (9.5 > 4), familiar to the federation (0.2 ≤ 0.5)'
        """
        known = f"like the data of this client ({compare(epistemic, self.epistemic)})"
        strange = f"unlike the data of this client ({compare(epistemic, self.epistemic)})"
        clear = f"({compare(aleatoric, self.aleatoric)})"
        sure = f"({compare(total, self.total)})"
        return {
            Outcome.LOCAL_CONFIDENT: f"{known}, and clear {clear}",
            Outcome.LOCAL_AMBIGUOUS: f"{known}, but ambiguous {clear}",
            Outcome.LOCAL_OOD: f"{strange}, familiar to the federation {sure}",
            Outcome.GLOBAL_UNCERTAIN: f"{strange}, and doubtful to all {sure}",
        }[outcome]


Rule = Quantiles
RULES: dict[str, type[Rule]] = {rule.kind: rule for rule in (Quantiles,)}


def calibrate(views: Views, labels: Tensor, settings: RoutingSettings) -> Rule:
    """Learns the rule that the settings name from held-out rows of the client's own."""
    one_of("routing.rule", settings.rule, list(RULES))
    return RULES[settings.rule].calibrate(views, labels, settings)


def to_state(rule: Rule) -> Params:
    """A rule as named tensors, for a client's slot `rule` and its file of a bundle."""
    return {name: torch.tensor(v, dtype=torch.float64) for name, v in asdict(rule).items()}


def from_state(kind: str, state: Params) -> Rule:
    """Reads a rule from named tensors."""
    if kind not in RULES:
        raise UserError(f"the rule of decisions is {kind!r}, which this fedpn does not know")
    try:
        rule = RULES[kind](**{name: float(value) for name, value in state.items()})
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"the rule {kind!r} cannot be read: {error}") from None
    if any(math.isnan(value) for value in asdict(rule).values()):
        raise UserError(f"the rule {kind!r} has a threshold that is no number")
    return rule


def rows_needed(share: float) -> int:
    """The fewest calibration rows from which a share can be cut off.

    >>> rows_needed(0.1), rows_needed(0.05)
    (9, 19)
    """
    return max(math.ceil(1 / share - 1 - 1e-9), 1)


def threshold(scores: Tensor, share: float) -> float:
    """The ⌈(n+1)(1−share)⌉-th smallest score.

    A new row of the same kind exceeds it with a chance of at most `share`, for any n: the
    finite-sample rule of conformal prediction.

    >>> threshold(Tensor([5, 1, 2, 9, 3, 4, 7, 8, 6]), share=0.1)
    9.0
    """
    n = len(scores)
    rank = math.ceil((n + 1) * (1 - share) - 1e-9)
    if rank > n:
        raise UserError(
            f"{n} calibration rows; a {100 * share:g} % threshold needs at least "
            f"{rows_needed(share)} (raise the share or give it more data)"
        )
    return float(scores.kthvalue(max(rank, 1)).values)


def compare(score: float, limit: float) -> str:
    """Shows as many digits as tell the two apart.

    >>> compare(9.5, 4.0), compare(2.3001, 2.3)
    ('9.5 > 4', '2.3001 > 2.3')
    """
    sign = ">" if score > limit else "≤"
    for digits in range(2, 9):
        left, right = f"{score:.{digits}g}", f"{limit:.{digits}g}"
        if left != right:
            break
    return f"{left} {sign} {right}"
