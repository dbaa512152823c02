"""Models and inputs -> answers, each with its source and its reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.core.code import code_from
from fedpn.core.errors import UserError
from fedpn.core.source import name_of_own
from fedpn.core.store import Damaged
from fedpn.data.dataset import Array
from fedpn.federated.gate import strangers
from fedpn.federated.heads import make_head
from fedpn.federated.observer import Embedder, Observer
from fedpn.nn.blueprint import build_model
from fedpn.routing.bayes import Bayes
from fedpn.routing.outcomes import Outcome, Source
from fedpn.routing.routers import make_router
from fedpn.routing.rule import EVEN, STRANGE, UNSOUND, Decision, Scores, Views, refuse_strangers
from fedpn.routing.standards import decide, hold, reason
from fedpn.routing.thresholds import compare
from fedpn.serving.bundle import Bundle, open_bundle
from fedpn.serving.conform import as_array, conform


@dataclass(frozen=True)
class Answer:
    """What a client is told of one input."""

    label: str | None  # None: nobody answers
    guess: str  # what the answering model would have said
    confidence: float
    probabilities: dict[str, float]
    source: str  # local, global, or nobody
    outcome: str
    uncertainty: dict[str, float]
    measured_on: dict[str, str]  # whose each uncertainty is: local, global, or both
    reason: str
    classes: tuple[str, ...] | None = None  # those in question, where the run makes sets of them

    def row(self) -> dict[str, Any]:
        """Flat values, for tables."""
        flat: dict[str, Any] = {name: getattr(self, name) for name in COLUMNS}
        flat |= {f"p({name})": p for name, p in self.probabilities.items()}
        flat |= self.uncertainty
        flat |= {f"{name} of": whose for name, whose in self.measured_on.items()}
        return flat if self.classes is None else flat | {"classes": "; ".join(self.classes)}


COLUMNS = ("label", "guess", "confidence", "source", "outcome", "reason")


class Answers(list[Answer]):
    """Answers in the order of the inputs."""

    def table(self) -> Any:
        """A row for each answer: a data frame where pandas is there, else a list."""
        rows = [answer.row() for answer in self]
        try:
            import pandas
        except ModuleNotFoundError:
            return rows
        return pandas.DataFrame(rows)


class Predictor:
    """Answers for one client: `predictor(images) -> [Answer, …]`."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        routing = bundle.about.routing
        named = routing is not None and routing.router != "none"
        with code_from(bundle.code):
            self.model = build_model(bundle.blueprint, seed=0)
            self.head = make_head(bundle.about.head)
            self.router = make_router(routing) if routing is not None and named else None
        self.own_share: float | None = None
        self._try_out()

    def _try_out(self) -> None:
        """Answers a plain input, so that parts which do not fit together are told at once."""
        dtype = torch.uint8 if len(self.bundle.blueprint.shape) == 3 else torch.float32
        x = torch.zeros(2, *self.bundle.blueprint.shape, dtype=dtype)
        try:
            self._answer(x, None)
        except (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            why = " ".join(str(error).split())[:200] or type(error).__name__
            client = self.bundle.client
            raise Damaged(f"the models of {client} do not fit together: {why}") from error

    def __call__(
        self, inputs: Array | Tensor | Sequence[Any], own_share: float | None = None
    ) -> Answers:
        """Takes images, [N, H, W] or [N, H, W, C], or rows of a table, [N, F], or a data frame;
        or pictures as Pillow has them, as paths or as the bytes of files, one or a list.

        Bayes' rule needs the share of own inputs among these; where none is given it is learned
        from the inputs, without labels, and `predictor.own_share` tells what it came to.

        The columns of a data frame are found by their names, if the model was trained on a table.
        """
        b = self.bundle
        if hasattr(inputs, "__len__") and not len(inputs):
            return Answers()
        rows = conform(as_array(inputs, b), b.blueprint.shape, b.about.recipe is not None)
        answers, self.own_share = self._answer(torch.from_numpy(rows), own_share)
        return answers

    def _answer(self, x: Tensor, own_share: float | None) -> tuple[Answers, float]:
        """Answers, and the share of own inputs that they go by."""
        views, strange = self.views(x), self.strangers(x)
        share = self.find_share(views, own_share, teaches(x, strange))
        return self.tell(*self.decide(views._replace(share=share), strange)), share

    def predict(self, inputs: Any, own_share: float | None = None) -> list[str | None]:
        """The labels alone; None where nobody answers."""
        return [answer.label for answer in self(inputs, own_share)]

    def predict_proba(self, inputs: Any, own_share: float | None = None) -> Array:  # [N, K]
        """The probabilities of the classes, whether or not somebody answers."""
        rows = [list(answer.probabilities.values()) for answer in self(inputs, own_share)]
        return np.array(rows).reshape(-1, len(self.bundle.classes))

    def views(self, x: Tensor) -> Views:
        """All that is known of inputs, in the form that the model was trained on."""
        b, rows = self.bundle, np.arange(len(x))
        # A client may have entries of the encoder to itself; the federation's model has its own.
        owned = self.model.task.encoder_names & b.own.keys()
        embed = Embedder(self.model, x, b.shared or b.predictor, owned)
        observe = Observer(self.model, b.shared, embed, self.head, b.head)
        own = observe.local(b.own, rows)
        if b.rule is None:
            return Views(own, own, own.total)
        sight, shared = observe.own_sight(b.own_head, rows), observe.shared(rows)
        score = own.total if self.router is None else self.router.score(own, shared, b.router)
        return Views(own, shared, score, EVEN, *sight)

    def strangers(self, x: Tensor) -> Tensor:  # [B], bool
        """Which inputs are like nothing that the federation has seen, where it has a gate."""
        return strangers(x, self.bundle.gate)

    def decide(self, views: Views, strange: Tensor) -> tuple[Decision, Tensor]:
        """Who answers what; and for which inputs the models gave finite numbers."""
        b = self.bundle
        decision = hold(decide(b.rule, views, b.standards), views, b.standards)
        sound = decision.outcome != int(Outcome.STRANGER)
        if b.gate:
            decision = refuse_strangers(decision, strange)
        return decision, sound

    def find_share(self, views: Views, given: float | None, known: Tensor) -> float:
        """The share of own inputs that a rule goes by: as given, or learned from known inputs."""
        rule = self.bundle.rule
        if given is None:
            return EVEN if rule is None else rule.learn_share(views, known)
        if not isinstance(rule, Bayes):
            raise UserError("the share of own inputs matters to Bayes' rule alone (routing.rule)")
        if not 0 <= given <= 1:
            raise UserError(f"the share of own inputs is {given}, but must be from 0 to 1")
        return given

    def tell(self, decision: Decision, sound: Tensor) -> Answers:
        """Decisions in words."""
        names = self.bundle.classes
        sets: list[list[bool] | None] = [None] * len(decision.label)
        if decision.classes is not None:
            sets = decision.classes.tolist()
        columns = (decision.probs.tolist(), decision.label.tolist(), decision.outcome.tolist())
        found = Answers()
        for probs, label, number, scores, is_sound, marks in zip(
            *columns, decision.scores(), sound.tolist(), sets, strict=True
        ):
            outcome = Outcome(number)
            source, told, reason = self._why(outcome, scores, is_sound)
            found.append(
                Answer(
                    label=names[label] if source is not Source.NOBODY else None,
                    guess=names[label],
                    confidence=probs[label],
                    probabilities=dict(zip(names, probs, strict=True)),
                    source=source,
                    outcome=told,
                    uncertainty=scores._asdict(),
                    measured_on=self._measured_on(outcome),
                    reason=reason,
                    classes=None if marks is None else tuple(compress(names, marks)),
                )
            )
        return found

    def _why(self, outcome: Outcome, scores: Scores, is_sound: bool) -> tuple[str, str, str]:
        """Who answers, what the outcome is called, and why."""
        b = self.bundle
        if outcome is Outcome.STRANGER:
            return outcome.source, outcome.label, STRANGE if is_sound else UNSOUND
        if b.rule is not None:
            return outcome.source, outcome.label, reason(b.rule, outcome, scores, b.standards)
        model = {"personal": "the client's model", "global": "the one model of all clients"}
        name = "personal" if b.own else "global"
        if outcome.source is Source.NOBODY:
            assert b.standards.promises is not None
            limit = compare(scores.total, b.standards.promises[0].threshold)
            why = f"{model[name]} is too doubtful for the promise ({limit})"
            return Source.NOBODY, outcome.label, why
        return name, name, f"the method has no switch: {model[name]} always answers"

    def _measured_on(self, outcome: Outcome) -> dict[str, str]:
        """Whose uncertainties are: of Bayes' rule, which weighs both models, both's."""
        b = self.bundle
        own = "local" if b.rule is not None or b.own else "global"
        if isinstance(b.rule, Bayes):
            return {"epistemic": "both", "aleatoric": "local", "total": "both"}
        sent_on = outcome.is_sent_on
        return {"epistemic": own, "aleatoric": own, "total": "global" if sent_on else own}


def teaches(x: Tensor, strange: Tensor) -> Tensor:  # [B], bool
    """Which inputs teach the share of own ones: strangers, and gaps, are nobody's."""
    return ~strange & x.flatten(1).isfinite().all(1) if x.is_floating_point() else ~strange


def load(
    path: str | Path,
    client: int | str | None = None,
    trust: bool = False,
    encoder: torch.nn.Module | None = None,
) -> Predictor:
    """Opens a finished run, or an exported folder, to answer for one client.

    A folder that names code of somebody's own is opened only where it is trusted. An encoder that
    was given to the run as a module, not as code, must be given again in another session.
    """
    if encoder is not None:
        name_of_own("encoder", encoder)
    return Predictor(open_bundle(Path(path), client, trust))
