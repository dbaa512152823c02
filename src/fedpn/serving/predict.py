"""Models and inputs -> answers, each with its source and its reason."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources.rows import as_rows
from fedpn.federated.gate import strangers
from fedpn.federated.heads import make_head
from fedpn.federated.observer import Embedder, Observer
from fedpn.nn.blueprint import build_model
from fedpn.routing.bayes import Bayes
from fedpn.routing.opinion import Opinion
from fedpn.routing.outcomes import Outcome, Source
from fedpn.routing.routers import make_router
from fedpn.routing.rule import EVEN, STRANGE, UNSOUND, Rule, Scores, Views, refuse_strangers
from fedpn.routing.scores import SCORES
from fedpn.serving.bundle import Bundle, open_bundle


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
    reason: str

    def row(self) -> dict[str, Any]:
        """Flat values, for tables."""
        flat = asdict(self)
        flat |= {f"p({name})": p for name, p in flat.pop("probabilities").items()}
        flat |= flat.pop("uncertainty")
        return flat


class Predictor:
    """Answers for one client: `predictor(images) -> [Answer, …]`."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.model = build_model(bundle.blueprint, seed=0)
        self.head = make_head(bundle.about.head)
        routing = bundle.about.routing
        named = routing is not None and routing.router != "none"
        self.router = make_router(routing) if routing is not None and named else None
        self.own_share: float | None = None

    def __call__(
        self, inputs: Array | Tensor | Sequence[Any], own_share: float | None = None
    ) -> list[Answer]:
        """Takes images, [N, H, W] or [N, H, W, C], or rows of a table, [N, F], or a data frame.

        Bayes' rule needs the share of own inputs among these; where none is given it is learned
        from the inputs, without labels, and `predictor.own_share` tells what it came to.

        The columns of a data frame are found by their names, if the model was trained on a table.
        """
        b = self.bundle
        x = torch.from_numpy(conform(_by_name(inputs, b.features), b.blueprint.shape))
        if not len(x):
            return []
        rows = np.arange(len(x))
        embed = Embedder(self.model, x, b.predictor)
        observe = Observer(self.model, b.shared, embed, self.head, b.head)
        own = observe.local(b.own, rows)
        if b.rule is None:
            strange = strangers(x, b.gate) if b.gate else torch.zeros(len(x), dtype=torch.bool)
            return self._plain(own, strange)
        sight, shared = observe.own_sight(b.own_head, rows), observe.shared(rows)
        score = own.total if self.router is None else self.router.score(own, shared, b.router)
        views = Views(own, shared, score, EVEN, *sight)
        self.own_share = self._share(views, b.rule, own_share)
        decision = b.rule.decide(views._replace(share=self.own_share))
        sound = decision.outcome != int(Outcome.STRANGER)
        if b.gate:
            decision = refuse_strangers(decision, strangers(x, b.gate))
        columns = (decision.probs.tolist(), decision.outcome.tolist(), decision.scores())
        return [
            self._answer(b.rule, probs, Outcome(number), scores, bool(finite))
            for probs, number, scores, finite in zip(*columns, sound, strict=True)
        ]

    def _share(self, views: Views, rule: Rule, given: float | None) -> float:
        """The share of own inputs that a rule goes by: as given, or learned from the inputs."""
        if given is None:
            return rule.learn_share(views)
        if not isinstance(rule, Bayes):
            raise UserError("the share of own inputs matters to Bayes' rule alone (routing.rule)")
        if not 0 <= given <= 1:
            raise UserError(f"the share of own inputs is {given}, but must be from 0 to 1")
        return given

    def _answer(
        self, rule: Rule, probs: list[float], outcome: Outcome, scores: Scores, sound: bool
    ) -> Answer:
        names = self.bundle.classes
        confidence = max(probs)
        guess = names[probs.index(confidence)]
        stranger = outcome is Outcome.STRANGER
        return Answer(
            label=guess if outcome.source is not Source.NOBODY else None,
            guess=guess,
            confidence=confidence,
            probabilities=dict(zip(names, probs, strict=True)),
            source=outcome.source,
            outcome=outcome.label,
            uncertainty=scores._asdict(),
            reason=STRANGE if stranger and sound else rule.reason(outcome, scores),
        )

    def _plain(self, own: Opinion, strange: Tensor) -> list[Answer]:
        """Answers of a method without a switch: the client's model, or the one of all; or nobody.

        Nobody answers strangers, nor where the model gives no finite numbers.
        """
        names = self.bundle.classes
        source = "personal" if self.bundle.own else "global"
        why = {"personal": "the client's model", "global": "the one model of all clients"}[source]
        always = f"the method has no switch: {why} always answers"
        sound = own.probs.isfinite().all(-1)
        probs = torch.where(sound[:, None], own.probs, 1 / len(names))
        scores = [SCORES["msp"](own).nan_to_num(1.0), own.total.nan_to_num(math.log(len(names)))]
        columns = (probs.tolist(), *(s.tolist() for s in scores), sound.tolist(), strange.tolist())
        found = []
        for row, epistemic, total, finite, stranger in zip(*columns, strict=True):
            nobody = stranger or not finite
            guess = names[int(np.argmax(row))]
            found.append(
                Answer(
                    label=None if nobody else guess,
                    guess=guess,
                    confidence=max(row),
                    probabilities=dict(zip(names, row, strict=True)),
                    source=Source.NOBODY if nobody else source,
                    outcome=Outcome.STRANGER.label if nobody else source,
                    uncertainty={"epistemic": epistemic, "aleatoric": total, "total": total},
                    reason=(STRANGE if finite else UNSOUND) if nobody else always,
                )
            )
        return found


def conform(inputs: Array, shape: Sequence[int]) -> Array:
    """Brings inputs to the form that a model was trained on, or says what is wrong with them.

    >>> conform(np.zeros((2, 28, 28), np.uint8), (1, 28, 28)).shape
    (2, 1, 28, 28)
    >>> conform(np.zeros((2, 5), np.uint8), (5,)).dtype
    dtype('float32')
    """
    if inputs.dtype == np.uint8 and inputs.ndim == 4 and inputs.shape[1:] == tuple(shape):
        return np.ascontiguousarray(inputs)
    rows, _ = as_rows(inputs, "inputs")
    if rows.shape[1:] != tuple(shape):
        form = "[N, F]" if len(shape) == 1 else "[N, H, W] or [N, H, W, C]"
        raise UserError(
            f"inputs have the shape {inputs.shape}; "
            f"this model takes {form} with one row of {tuple(shape)}"
        )
    return np.ascontiguousarray(rows)


def _by_name(inputs: Any, features: Sequence[str]) -> Array:
    columns = getattr(inputs, "columns", None)
    if columns is None or not features:
        return np.asarray(inputs)
    absent = [name for name in features if name not in columns]
    if absent:
        raise UserError(f"inputs lack the columns {', '.join(absent)}")
    return np.asarray(inputs[list(features)])


def load(path: str | Path, client: int | str | None = None, trust: bool = False) -> Predictor:
    """Opens a finished run, or an exported folder, to answer for one client.

    A folder that names code of somebody's own is opened only where it is trusted.
    """
    return Predictor(open_bundle(Path(path), client, trust))
