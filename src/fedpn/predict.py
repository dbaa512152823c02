"""Models and inputs -> answers, each with its source and its reason."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.bundle import Bundle, open_bundle
from fedpn.data.dataset import Array, channels_first
from fedpn.errors import UserError
from fedpn.nn.build import build_model
from fedpn.personalise import Embedder, Observer
from fedpn.routing.scores import Opinion
from fedpn.routing.switch import OUTCOMES, SOURCES, decide, reason


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

    def __call__(self, inputs: Array | Tensor | Sequence[Any]) -> list[Answer]:
        """Takes images as bytes, [N, H, W] or [N, H, W, C], or rows of a table, [N, F]."""
        b = self.bundle
        x = torch.from_numpy(conform(np.asarray(inputs), b.blueprint.shape))
        rows = np.arange(len(x))
        if not len(x):
            return []
        observe = Observer(
            self.model, Embedder(self.model, x, b.shared or b.own), b.score, b.router
        )
        own = observe(b.predictor, rows)
        if b.thresholds is None or b.shared is None:
            return self._plain(own)
        decision = decide(own, observe(b.shared, rows), b.thresholds)
        return [
            self._answer(*values) for values in zip(*(t.tolist() for t in decision), strict=True)
        ]

    def _answer(
        self,
        probs: list[float],
        label: int,
        source: int,
        outcome: int,
        epistemic: float,
        aleatoric: float,
        total: float,
    ) -> Answer:
        names, thresholds = self.bundle.classes, self.bundle.thresholds
        assert thresholds is not None
        answered = outcome % 2 == 0
        return Answer(
            label=names[label] if answered else None,
            guess=names[label],
            confidence=probs[label],
            probabilities=dict(zip(names, probs, strict=True)),
            source=SOURCES[source] if answered else "nobody",
            outcome=OUTCOMES[outcome],
            uncertainty={"epistemic": epistemic, "aleatoric": aleatoric, "total": total},
            reason=reason(OUTCOMES[outcome], epistemic, aleatoric, total, thresholds),
        )

    def _plain(self, own: Opinion) -> list[Answer]:
        """Answers of a method without a switch: always its own."""
        names = self.bundle.classes
        columns = own.probs.tolist(), own.epistemic.tolist(), own.total.tolist()
        return [
            Answer(
                label=names[int(np.argmax(probs))],
                guess=names[int(np.argmax(probs))],
                confidence=max(probs),
                probabilities=dict(zip(names, probs, strict=True)),
                source="personal",
                outcome="personal",
                uncertainty={"epistemic": epistemic, "aleatoric": total, "total": total},
                reason="the method has no switch: the client's model always answers",
            )
            for probs, epistemic, total in zip(*columns, strict=True)
        ]


def conform(inputs: Array, shape: Sequence[int]) -> Array:
    """Brings inputs to the form that a model was trained on, or says what is wrong with them.

    >>> conform(np.zeros((2, 28, 28), np.uint8), (1, 28, 28)).shape
    (2, 1, 28, 28)
    """
    tabular = len(shape) == 1
    if tabular and inputs.ndim == 2 and inputs.shape[1:] == tuple(shape):
        x = inputs.astype(np.float32)
        if not np.isfinite(x).all():
            raise UserError(f"row {int(np.argwhere(~np.isfinite(x))[0][0])} has a missing value")
        return x
    if not tabular:
        x = inputs
        if x.ndim != 4 or x.shape[1:] != tuple(shape):
            x = channels_first(x) if x.ndim in (3, 4) else x
        if x.shape[1:] == tuple(shape):
            if x.dtype != np.uint8:
                raise UserError(f"images are {x.dtype}; give bytes from 0 to 255 (uint8)")
            return np.ascontiguousarray(x)
    form = "[N, F]" if tabular else "[N, H, W] or [N, H, W, C]"
    raise UserError(
        f"inputs have the shape {inputs.shape}; "
        f"this model takes {form} with one row of {tuple(shape)}"
    )


def load(path: str | Path, client: int | str | None = None) -> Predictor:
    """Opens a finished run, or an exported folder, to answer for one client."""
    return Predictor(open_bundle(Path(path), client))
