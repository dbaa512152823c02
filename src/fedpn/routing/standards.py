"""What answers are held to, whichever rule decides: promises, sets of classes, honest confidence.

A rule says whose an input is and who would answer. Then, from held-out rows:

- a **promise** (`routing.risk`): limits on doubt such that, of the inputs that are answered, at
  most a share is answered wrongly. For inputs like the client's own its own rows decide, where
  they are enough; a client with fewer takes a limit that all but a few other clients keep to. For
  inputs of classes that it has not, the limit is one that all but a few hypothetical clients keep
  to, tested on the rows of all clients (`pooled`).
- **sets** of classes (`routing.sets`) that seldom miss the true one.
- a **temperature**, so that confidence is deserved, and an **operating point** for rare classes.

All of it is kept as named tensors: a client's slot `standards`, and its file of a bundle.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import promises
from fedpn.core.errors import UserError
from fedpn.core.promises import NOTHING, Kind, Promise
from fedpn.core.trees import Params
from fedpn.routing.bayes import learn_priors
from fedpn.routing.outcomes import Outcome, Source
from fedpn.routing.pooled import (
    TEMPERATURES,
    cooled,
    losses_by_temperature,
    odd_edges,
    one_mistake,
    true_scores,
)
from fedpn.routing.risk_control import NO_OUTLOOK, Outlook, promise_pair
from fedpn.routing.rule import (
    Decision,
    Lesson,
    Rule,
    Scores,
    Views,
    of_one_model,
    refuse_strangers,
)
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.thresholds import compare, rows_needed

FAR = 0.02  # of held-out rows that may look foreigner than the limit for drift
ENOUGH = 30  # rows for a temperature of one's own
KINDS: tuple[Kind, ...] = ("lac", "aps", "raps")


class Standards(NamedTuple):
    """A client's standards; the first of each pair is for own inputs, the second for foreign."""

    temperature: Tensor  # [2]
    point: Tensor  # [K], by which probabilities are multiplied before the likeliest is taken
    promise: Tensor  # [2, 5], fields of `Promise`; without a promise [0, 5]
    asked: Tensor  # [2], the share of wrong answers that was asked for, and how surely
    odd: Tensor  # [2], how odd a class of a set may be; without sets [0]
    kind: Tensor  # the place of the sets' kind in `KINDS`
    borrowed: Tensor  # whether the limits are the federation's, for want of rows
    counts: Tensor  # [K], the client's training rows, by which a rule can be taught again
    outlook: Tensor  # [2, 2], fields of `Outlook`, where nothing could be promised; else zeros
    seen: Tensor  # [5], held-out rows: all, strangers, known but not answered, foreign; the limit
    elsewhere: Tensor  # the share of its rows that other clients have too; below 0: unknown

    @property
    def promises(self) -> tuple[Promise, Promise] | None:
        """Of own and of foreign inputs."""
        if not len(self.promise):
            return None
        own, foreign = (Promise(t, int(n), int(w), c, b) for t, n, w, c, b in self.promise.tolist())
        return own, foreign

    @property
    def answers(self) -> bool:
        """Whether own inputs may be answered at all."""
        return not len(self.promise) or float(self.promise[0, 0]) > -math.inf

    def remarks(self) -> list[str]:
        """What a client should know of its promise."""
        said = []
        if self.elsewhere > 0:
            return [self._shared()]
        if self.borrowed:
            said.append("too few rows for limits of its own: it takes those of the federation")
        pairs = zip(self.promises or (), self.outlook.tolist(), strict=False)
        sides = dict.fromkeys((promise, Outlook(*hope)) for promise, hope in pairs)
        for whose, (promise, hope) in zip(("own", "foreign"), sides, strict=False):
            if promise.threshold == -math.inf:
                said.append(self._nothing(whose, hope))
        if self.elsewhere < 0 and (len(self.promise) or len(self.odd)):
            said.append(
                "whether other clients have the same rows was not looked for at all of them"
            )
        return said

    def _shared(self) -> str:
        """Why nothing is promised where other clients may have trained on the rows."""
        nobody = ", and nobody answers" if len(self.promise) else ""
        every = ", and sets name every class" if len(self.odd) else ""
        return (
            f"about {100 * float(self.elsewhere):.0f} % of its rows are at other clients as well, "
            "or repeat but for columns left out, and may have been trained on: nothing is "
            f"promised{nobody}{every}"
        )

    def _nothing(self, whose: str, hope: Outlook) -> str:
        """Why nothing is answered, which risk could be promised, and what the asked one takes."""
        text = (
            f"at most {100 * float(self.asked[0]):g} % wrong answers cannot be promised of {whose} "
            "inputs, so nobody answers them"
        )
        if hope.risk:
            able = f"{100 * hope.risk:g} % could be" if hope.risk < math.inf else "nor can any risk"
            more = f"; {hope.rows:,.0f} calibration rows like these might do for it"
            text += f" ({able}{more if hope.rows < math.inf else ''})"
        return text

    def words(self) -> str:
        """The promise in words, with what it assumes; "" where there is none."""
        if self.promises is None:
            return ""
        if self.elsewhere > 0:
            return f"No promise is made: {self._shared()}."
        risk, sure = self.asked.tolist()
        return promise_in_words(risk, sure, bool(self.borrowed))


def promise_in_words(risk: float, sure: float, borrowed: bool = False) -> str:
    """What is promised, and of which inputs."""
    few = f"a limit chosen so that at most {100 * (1 - sure):g} % of clients are above"
    own = f"its own calibration rows, with {100 * sure:g} % confidence"
    if borrowed:
        own = f"other clients' calibration rows, {few}"
    return (
        f"Of the inputs that are answered, at most {100 * risk:g} % are answered wrongly: for "
        f"inputs like this client's own (tested on {own}), and for inputs of other classes, drawn "
        f"like the other clients' ({few}). It says nothing of other inputs, nor of any single "
        "class."
    )


def of_state(state: Params) -> Standards:
    """Reads standards from named tensors."""
    # Files written before version 0.3 lack these three.
    sizes: dict[str, tuple[int, ...]] = {"outlook": (2, 2), "elsewhere": (), "seen": (5,)}
    lacking = {name: torch.zeros(size, dtype=torch.float64) for name, size in sizes.items()}
    state = lacking | state
    strange = state.keys() ^ set(Standards._fields)
    if strange:
        raise UserError(f"the standards cannot be read: {', '.join(sorted(strange))}")
    if any(t.isnan().any() for t in state.values()):
        raise UserError("the standards have a number that is not finite (NaN)")
    return Standards(**state)


def usual(counts: Tensor) -> Standards:
    """The standards of a client that has none: nothing is changed."""
    none, zero = torch.zeros(0, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    even = torch.ones(len(counts), dtype=torch.float64)
    hope = torch.zeros(2, 2, dtype=torch.float64)
    return Standards(
        even[:1].expand(2),
        even,
        none.reshape(0, 5),
        none,
        none,
        zero,
        zero,
        counts,
        hope,
        none.new_zeros(5),
        zero,
    )


def teach(
    kind: type[Rule] | None, lesson: Lesson, settings: RoutingSettings
) -> tuple[Rule | None, Standards]:
    """A client's rule, and what its answers are held to, from its held-out rows; where these are
    too few for thresholds, or too few to settle the promise, from other clients'.

    Where its rows show more mistakes than are promised, nothing is lent: nobody answers there.
    """
    check_promise(settings)
    if kind is None:
        return None, _learn(None, lesson, settings, "")
    borrowed = kind.borrow(lesson, settings)
    lender = kind.pooled_doubts
    if borrowed is not None and len(lesson.labels) < rows_needed(
        min(settings.outliers, settings.abstain)
    ):
        return borrowed, _learn(borrowed, lesson, settings, lender)
    rule = kind.calibrate(lesson, settings)
    held = _learn(rule, lesson, settings, "")
    if settings.risk and borrowed is not None and not held.answers:
        lent = _learn(borrowed, lesson, settings, lender)
        if lent.answers:
            return borrowed, lent
    return rule, held


def check_promise(settings: RoutingSettings) -> None:
    """Refuses a promise about answers that all clients' counts are not of."""
    if settings.risk and settings.operating_point != "likeliest":
        raise UserError(
            "routing.risk promises something of the likeliest classes; it does not go with "
            f"routing.operating_point={settings.operating_point}"
        )


def _learn(rule: Rule | None, lesson: Lesson, settings: RoutingSettings, lender: str) -> Standards:
    """Standards by a rule; `lender` names the pooled counts that stand for own rows, if any do."""
    asked = [settings.risk, settings.sure] if settings.risk else []
    found = usual(lesson.counts.double())._replace(
        point=_point(lesson, settings),
        asked=torch.tensor(asked, dtype=torch.float64),
        borrowed=torch.tensor(float(bool(lender))),
        elsewhere=torch.tensor(lesson.elsewhere, dtype=torch.float64),
    )
    decision = decide(rule, lesson.views, found)
    if settings.temperature == "auto":
        found = found._replace(temperature=_temperatures(decision, lesson, lender))
    if settings.risk:
        pair, hopes = (NOTHING, NOTHING), (NO_OUTLOOK, NO_OUTLOOK)
        if lesson.elsewhere <= 0:
            pair, hopes = promise_pair(rule, decision, lesson, settings, lender)
        kept, hope = (torch.tensor(part, dtype=torch.float64) for part in (pair, hopes))
        found = found._replace(promise=kept, outlook=hope)
    if settings.sets:
        kind = torch.tensor(float(KINDS.index(settings.set_kind)))
        found = found._replace(odd=_odd(decision, lesson, settings, lender), kind=kind)
    return found


def _point(lesson: Lesson, settings: RoutingSettings) -> Tensor:  # [K]
    """What probabilities are multiplied by: of `balanced`, one over the prior of each class."""
    if settings.operating_point == "likeliest":
        return torch.ones(len(lesson.counts), dtype=torch.float64)
    own, foreign = learn_priors(lesson.counts)
    prior = (own + foreign) / 2 if foreign.any() else own
    return 1 / (len(prior) * prior.clamp(min=1e-6))


def _temperatures(decision: Decision, lesson: Lesson, lender: str) -> Tensor:  # [2]
    """Of own inputs by own rows, where there are enough; of foreign ones by all clients'."""
    kept, pooled = ~decision.delegated, lesson.pooled or {}
    nothing = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    probs = decision.probs[kept]
    own = losses_by_temperature(probs, lesson.labels[kept]) + one_mistake(probs)
    if lender or int(kept.sum()) < ENOUGH:
        own = pooled.get(f"{lender or 'shared'}/heat", nothing)
    return torch.stack([_best(own), _best(pooled.get("shared/heat", nothing))])


def _best(losses: Tensor) -> Tensor:
    """The temperature of the least loss; 1, in the middle, where none is less than its."""
    middle, best = len(TEMPERATURES) // 2, int(losses.argmin())
    return TEMPERATURES[best if losses[best] < losses[middle] else middle]


def _odd(decision: Decision, lesson: Lesson, settings: RoutingSettings, lender: str) -> Tensor:
    """How odd classes of sets may be, [2], for own inputs and for those that are sent on."""
    kind, pooled = settings.set_kind, lesson.pooled
    if lesson.elsewhere > 0:
        return torch.full((2,), math.inf, dtype=torch.float64)
    edges = odd_edges(kind, len(lesson.counts))
    probs = _answering(decision, lesson.views)
    counts = promises.tally(true_scores(probs, lesson.labels, kind), None, edges)
    if lender and pooled is not None:
        counts = pooled[f"{lender}/odd"]
    own = foreign = promises.set_threshold(counts, edges, settings.sets)
    if pooled is not None:
        foreign = max(own, promises.set_threshold(pooled["shared/odd"], edges, settings.sets))
    return torch.tensor([own, foreign], dtype=torch.float64)


def _answering(decision: Decision, views: Views) -> Tensor:  # [B, K]
    """Whose probabilities sets are made of: what is sent on is the federation's to answer."""
    return torch.where(decision.delegated[:, None], views.shared.probs, decision.probs)


def decide(rule: Rule | None, views: Views, held: Standards) -> Decision:
    """What a rule decides at the operating point; without a rule the one model answers.

    Where something is promised, only what all clients share has a say in weighed answers, at an
    even share of own inputs: how a client's own model answers foreign inputs nobody has seen, and
    a share that was learned would squeeze foreign inputs into own classes.
    """
    if rule is not None and len(held.asked):
        rule, views = rule.common(views)
    decision = of_one_model(views.local) if rule is None else rule.decide(views)
    return decision._replace(label=(decision.probs * held.point).argmax(-1))


def hold(decision: Decision, views: Views, held: Standards) -> Decision:
    """A decision, held to a client's standards."""
    side = decision.delegated.long()
    probs = cooled(decision.probs, held.temperature[side])
    outcome, classes = decision.outcome, None
    if held.promises is not None:
        own, foreign = (promise.threshold for promise in held.promises)
        limits = [promises.may_answer(decision.total, limit) for limit in (own, foreign)]
        sent_on = decision.delegated
        answer = (sent_on & limits[1]) | (~sent_on & limits[0])
        unsound = outcome == int(Outcome.STRANGER)
        outcome = torch.where(unsound, outcome, 2 * side + (~answer).long())
    if len(held.odd):
        scores = promises.class_scores(_answering(decision, views), KINDS[int(held.kind)])
        few = scores == scores.amin(1, keepdim=True)  # the least odd class is always among them
        classes = ~(scores > held.odd[side][:, None]) | few
    return decision._replace(probs=probs, outcome=outcome, classes=classes)


def count_outcomes(
    rule: Rule | None, views: Views, held: Standards, strange: Tensor
) -> Tensor:  # [5]
    """What becomes of held-out rows: the yardstick of drift, to which the service holds inputs.

    All but `FAR` of the rows look less foreign than the limit.
    """
    decision = refuse_strangers(hold(decide(rule, views, held), views, held), strange)
    is_strange = decision.outcome == int(Outcome.STRANGER)
    scores = foreignness(rule, decision, views.share)
    scores = torch.where(is_strange, -math.inf, scores)
    limit = float(scores.sort(descending=True).values[int(FAR * len(scores))])
    marks = (is_strange | True, is_strange, ~decision.answered & ~is_strange, scores > limit)
    return torch.tensor([*(int(mark.sum()) for mark in marks), limit], dtype=torch.float64)


def foreignness(rule: Rule | None, decision: Decision, share: float) -> Tensor:  # [B]
    """How foreign inputs look to a rule; without one nothing is foreign."""
    if rule is None:
        return torch.zeros(len(decision.label), dtype=torch.float64)
    return rule.foreignness(decision.epistemic, torch.tensor(share))


def reason(rule: Rule, outcome: Outcome, scores: Scores, held: Standards) -> str:
    """Why, in words: by the rule's own thresholds, or by a promise where there is one."""
    if held.promises is None or outcome is Outcome.STRANGER:
        return rule.reason(outcome, scores)
    foreign = outcome.is_sent_on
    limit = held.promises[int(foreign)].threshold
    if limit == -math.inf:
        return f"{rule.whose(outcome, scores)}, of which nothing can be promised"
    how = "and sure enough" if outcome.source is not Source.NOBODY else "but too doubtful"
    compared = compare(scores.total, limit)
    return f"{rule.whose(outcome, scores)}, {how} for the promise ({compared})"
