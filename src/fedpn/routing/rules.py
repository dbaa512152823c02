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
from fedpn.routing.bayes import EVEN, believe, entropy
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome, answered
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, threshold

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a client's own model beside the federation's


class Views(NamedTuple):
    """What there is to decide by: both models' opinions of rows, and the router's score."""

    local: Opinion
    shared: Opinion
    score: Tensor  # [B], of the switch; higher = less the client's own
    priors: Params = {}  # noqa: RUF012  # of Bayes' rule
    share: float = EVEN  # of own inputs among all


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

    def scores(self) -> list[Scores]:
        """The numbers behind each row's decision."""
        columns = (self.epistemic.tolist(), self.aleatoric.tolist(), self.total.tolist())
        return [Scores(e, a, t) for e, a, t in zip(*columns, strict=True)]

    @property
    def delegated(self) -> Tensor:
        """Whether the federation is asked in the client's stead."""
        asked = torch.tensor([Outcome.LOCAL_OOD, Outcome.GLOBAL_UNCERTAIN])
        return torch.isin(self.outcome, asked.to(self.outcome.device))

    @property
    def answered(self) -> Tensor:
        """Whether somebody answers, rather than nobody."""
        return answered(self.outcome)


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


UNSOUND = "the models give no finite numbers for it: nobody can answer"


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


@dataclass(frozen=True)
class Bayes:
    """Bayes' rule with the client's prior (`routing.bayes`), and when nobody answers.

    The client's own model has a say only as far as that helps on calibration rows.
    """

    weight: float  # of the client's own model, among its own inputs
    own_doubt: float  # above which an own input's answer is too uncertain
    foreign_doubt: float  # above which a foreign input's is

    kind: ClassVar[str] = "bayes"

    @classmethod
    def calibrate(cls, views: Views, labels: Tensor, settings: RoutingSettings) -> "Bayes":
        losses = {w: _own_loss(views, labels, w) for w in WEIGHTS}
        weight = min(WEIGHTS, key=lambda w: (losses[w], w))
        certain = believe(views.shared, views.local, views.priors, weight)
        return cls(
            weight=weight,
            own_doubt=threshold(entropy(certain.probs(EVEN)), settings.abstain),
            foreign_doubt=threshold(views.shared.total.double(), settings.abstain),
        )

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        belief = believe(views.shared, views.local, views.priors, self.weight)
        mine = belief.own_chance(views.share)
        probs = belief.probs(views.share)
        doubt, foreign = entropy(probs), mine < 0.5
        limit = torch.where(foreign, self.foreign_doubt, self.own_doubt)
        return refuse_unsound(
            Decision(
                probs=probs.float(),
                label=probs.argmax(-1),
                outcome=2 * foreign.long() + (doubt > limit).long(),
                epistemic=1 - mine,
                aleatoric=entropy(belief.own),
                total=doubt,
            )
        )

    def reason(self, outcome: Outcome, scores: Scores) -> str:
        """Tells in words why.

        >>> Bayes(0.0, 0.5, 0.4).reason(Outcome.LOCAL_CONFIDENT, Scores(0.04, 0.1, 0.2))
        '96 % own: of the kinds that this client has, and clear (0.2 ≤ 0.5)'
        """
        mine, known = (
            f"{100 * (1 - scores.epistemic):.0f} % own",
            "of the kinds that this client has",
        )
        ours, theirs = (
            compare(scores.total, limit) for limit in (self.own_doubt, self.foreign_doubt)
        )
        return {
            Outcome.LOCAL_CONFIDENT: f"{mine}: {known}, and clear ({ours})",
            Outcome.LOCAL_AMBIGUOUS: f"{mine}: {known}, but ambiguous ({ours})",
            Outcome.LOCAL_OOD: f"{mine}: of kinds that others have, who can tell ({theirs})",
            Outcome.GLOBAL_UNCERTAIN: f"{mine}: of kinds that others have, who doubt ({theirs})",
            Outcome.STRANGER: UNSOUND,
        }[outcome]


def _own_loss(views: Views, labels: Tensor, weight: float) -> float:
    """How unlikely calibration rows are, taken for own, by a say of the client's model."""
    own = believe(views.shared, views.local, views.priors, weight).own
    return float(-own.gather(1, labels[:, None]).clamp(min=1e-12).log().mean())


Rule = Quantiles | Bayes
RULES: dict[str, type[Quantiles] | type[Bayes]] = {rule.kind: rule for rule in (Quantiles, Bayes)}


def calibrate(
    views: Views, labels: Tensor, settings: RoutingSettings, kind: str = Quantiles.kind
) -> Rule:
    """Learns a rule from held-out rows of the client's own."""
    one_of("routing.rule", kind, list(RULES))
    return RULES[kind].calibrate(views, labels, settings)


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
