"""Bayes' rule with the client's own prior: one answer from what both sides know.

The federation's model has learned p_g(y | x) under an even prior. Whose input it is changes the
prior: π_own has the client's class frequencies, π_foreign the classes that it has not. With the
share ρ of own inputs,

    P(own | x) = σ(log Σ_y p_g(y|x)·π_own(y) − log Σ_y p_g(y|x)·π_foreign(y) + logit ρ),
    p(y | x) = P(own | x)·p(y | x, own) + (1 − P(own | x))·p(y | x, foreign).

Where the client has every class, and its inputs look unlike others', P(own | x) comes from their
looks instead (`federated.heads.own`), and others' inputs have the even prior. A client's own head
takes the place of p_g among own inputs, where it has one.

ρ is ½ before any input is seen and is learned from unlabelled inputs by EM (Saerens et al., 2002,
for two shares), with one pseudo-count on each side.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from fedpn.routing.outcomes import Outcome
from fedpn.routing.rule import EVEN, UNSOUND, Decision, Lesson, Rule, Scores, Views, refuse_unsound
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, never_binds, pooled_threshold, threshold

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of a client's own model beside the federation's
STEPS = 60  # of EM: far beyond what it needs
TINY = 1e-30
LEAST = 1e-6  # nats: answers that are surer than this are equally sure
SURE = 100.0  # log odds


class Belief(NamedTuple):
    """What Bayes' rule says of some rows."""

    odds: Tensor  # [B], log of own against foreign, before the share
    own: Tensor  # [B, K], p(y | x, own)
    foreign: Tensor  # [B, K], p(y | x, foreign)

    def own_chance(self, share: float) -> Tensor:  # [B]
        """P(own | x), given the share of own inputs."""
        ratio = torch.tensor(share, dtype=torch.float64).clamp(1e-6, 1 - 1e-6).logit()
        return torch.sigmoid(self.odds + ratio)

    def probs(self, share: float) -> Tensor:  # [B, K]
        """p(y | x), given the share of own inputs."""
        mine = self.own_chance(share)[:, None]
        return mine * self.own + (1 - mine) * self.foreign


def learn_priors(counts: Tensor) -> tuple[Tensor, Tensor]:  # [K] -> [K], [K]
    """π_own by the client's training rows of each class; π_foreign even over those it has not."""
    counts = counts.double()
    absent = (counts == 0).double()
    return counts / counts.sum(), absent / absent.sum().clamp(min=1)


def believe(views: Views, own: Tensor, foreign: Tensor, weight: float) -> Belief:
    """Both sides of each input; `weight` is the client's own model's say in p(y | x, own)."""
    log_g = views.shared.probs.double().clamp(min=TINY).log()
    mine = log_g + own.log()
    log_own = mine.log_softmax(-1)
    if views.own_logits is not None:
        log_own = (views.own_logits.double().log_softmax(-1) + own.log()).log_softmax(-1)
    if weight:
        log_local = views.local.probs.double().clamp(min=TINY).log()
        log_own = ((1 - weight) * log_own.clamp(min=-1e3) + weight * log_local).log_softmax(-1)
    if not foreign.any():  # the client has every class: looks may tell, else all may be its own
        if views.likeness is not None:
            return Belief(views.likeness.clamp(-SURE, SURE), log_own.exp(), log_g.exp())
        return Belief(torch.full_like(log_g[:, 0], SURE), log_own.exp(), log_own.exp())
    theirs = log_g + foreign.log()
    odds = torch.logsumexp(mine, -1) - torch.logsumexp(theirs, -1)
    return Belief(odds, log_own.exp(), theirs.softmax(-1))


def learn_share(odds: Tensor, own: float = 1.0, foreign: float = 1.0) -> float:
    """The share of own inputs among unlabelled ones, by EM with a Beta prior.

    The prior counts as so many own and foreign inputs seen before.

    >>> round(learn_share(torch.tensor([9.0] * 8)), 3), learn_share(torch.tensor([]))
    (0.9, 0.5)
    """
    share = own / (own + foreign)
    odds = odds[odds.isfinite()].double()  # where a model broke down it says nothing of the others
    for _ in range(STEPS if len(odds) else 0):
        ratio = torch.tensor(share, dtype=torch.float64).logit()
        mine = float(torch.sigmoid(odds + ratio).sum())
        share = (mine + own) / (len(odds) + own + foreign)
    return share


@dataclass
class RunningShare:
    """The share of own inputs in a stream, of which the last ones count most.

    >>> stream = RunningShare(window=100)
    >>> for _ in range(50):
    ...     share = stream.learn(torch.full((10,), 8.0))
    >>> share > 0.98, stream.own + stream.foreign < 101
    (True, True)
    """

    window: float = 200.0  # inputs that are remembered
    own: float = 1.0
    foreign: float = 1.0

    @property
    def share(self) -> float:
        return self.own / (self.own + self.foreign)

    def learn(self, odds: Tensor) -> float:
        """The share after more inputs, which it is also the answer for."""
        share = learn_share(odds, self.own, self.foreign)
        total = self.own + self.foreign + int(odds.isfinite().sum())
        kept = min(total, self.window)
        # One pseudo-count stays on each side: a stream may turn.
        self.own = max(1.0, share * kept)
        self.foreign = max(1.0, (1 - share) * kept)
        return share


def entropy(probs: Tensor) -> Tensor:  # [B, K] -> [B]
    """Of a distribution that may have zeros; next to 0 all that is left is rounding."""
    return -(probs * probs.clamp(min=TINY).log()).sum(-1).clamp(max=-LEAST)


@dataclass(frozen=True)
class Bayes(Rule):
    """Bayes' rule with the client's prior (`routing.bayes`), and when nobody answers.

    The client's own model has a say only as far as that helps on calibration rows.
    """

    own: Tensor  # [K], π_own
    foreign: Tensor  # [K], π_foreign; 0 where the client has rows of every class
    weight: float  # of the client's own model, among its own inputs
    own_doubt: float  # above which an own input's answer is too uncertain
    foreign_doubt: float  # above which a foreign input's is

    row: ClassVar[str] = "bayes"
    needs_router: ClassVar[bool] = False
    pooled_doubts: ClassVar[str] = "bayes"
    weighs: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, lesson: Lesson, settings: RoutingSettings) -> Self:
        views, labels = lesson.views, lesson.labels
        own, foreign = learn_priors(lesson.counts)
        alone = torch.equal(views.local.probs, views.shared.probs)  # the client has none of its own
        tries = [cls(own, foreign, w, 0.0, 0.0) for w in (WEIGHTS[:1] if alone else WEIGHTS)]
        best = min(tries, key=lambda rule: (rule._own_loss(views, labels), rule.weight))
        certain = best.believe(views).probs(EVEN)
        return replace(
            best,
            own_doubt=threshold(entropy(certain), settings.abstain),
            foreign_doubt=threshold(views.shared.total.double(), settings.abstain),
        )

    @classmethod
    def borrow(cls, lesson: Lesson, settings: RoutingSettings) -> Self | None:
        """The client's prior, and how doubtful all clients' rows are under theirs."""
        if lesson.pooled is None:
            return None
        classes = len(lesson.counts)
        doubts = (lesson.pooled[f"{who}/doubt"] for who in ("bayes", "shared"))
        limits = (pooled_threshold(counts, classes, settings.abstain) for counts in doubts)
        return cls(*learn_priors(lesson.counts), 0.0, *limits)

    def common(self, views: Views) -> tuple[Rule, Views]:
        return replace(self, weight=0.0), views._replace(own_logits=None, share=EVEN)

    def remarks(self, classes: int) -> list[str]:
        said = []
        for limit, whose in ((self.own_doubt, "own"), (self.foreign_doubt, "foreign")):
            if never_binds(limit, classes):
                said.append(
                    f"no {whose} input is too uncertain: {limit:.3g} is as doubtful as can be"
                )
        return said

    def _own_loss(self, views: Views, labels: Tensor) -> float:
        """How unlikely calibration rows are, taken for own."""
        own = self.believe(views).own
        return float(-own.gather(1, labels[:, None]).clamp(min=1e-12).log().mean())

    def believe(self, views: Views) -> Belief:
        """Both sides of each input."""
        return believe(views, self.own, self.foreign, self.weight)

    def foreignness(self, epistemic: Tensor, share: Tensor) -> Tensor:
        """Log odds at an even share; all that look own are alike."""
        at_share = epistemic.double().logit(1e-15)
        return (at_share + share.double().logit(1e-6)).clamp(min=0)

    def learn_share(self, views: Views, known: Tensor | None = None) -> float:
        odds = self.believe(views).odds
        return learn_share(odds if known is None else odds[known])

    def decide(self, views: Views) -> Decision:
        """Decides row by row."""
        belief = self.believe(views)
        mine = belief.own_chance(views.share)
        probs = belief.probs(views.share)
        doubt, foreign = entropy(probs), mine < 0.5
        limit = doubt.new_tensor([self.own_doubt, self.foreign_doubt])[foreign.long()]
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

    def whose(self, outcome: Outcome, scores: Scores) -> str:
        return f"{100 * (1 - scores.epistemic):.0f} % likely this client's"

    def reason(self, outcome: Outcome, scores: Scores) -> str:
        """Tells in words why.

        >>> even = torch.full((2,), 0.5)
        >>> Bayes(even, even, 0.0, 0.5, 0.4).reason(Outcome.LOCAL_CONFIDENT, Scores(0.04, 0.1, 0.2))
        "96 % likely this client's; the answer is clear (entropy 0.2 ≤ 0.5)"
        """
        if outcome is Outcome.STRANGER:
            return UNSOUND
        limit, how = {
            Outcome.LOCAL_CONFIDENT: (self.own_doubt, "the answer is clear"),
            Outcome.LOCAL_AMBIGUOUS: (self.own_doubt, "the answer is ambiguous"),
            Outcome.LOCAL_OOD: (self.foreign_doubt, "the federation is certain"),
            Outcome.GLOBAL_UNCERTAIN: (self.foreign_doubt, "the federation is uncertain"),
        }[outcome]
        return f"{self.whose(outcome, scores)}; {how} (entropy {compare(scores.total, limit)})"
