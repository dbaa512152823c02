"""Labelled rows for a finished model: new thresholds from them, or a judgement of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import metrics, seeds
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.prepared import prepared
from fedpn.data.recode import recode
from fedpn.data.sources import npz
from fedpn.data.sources.own import read_dataset
from fedpn.data.sources.table import Wanted, ways_of
from fedpn.data.units import of_rows, one_of_each
from fedpn.routing.outcomes import OUTCOMES
from fedpn.routing.rule import Lesson
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import Standards, count_outcomes, teach
from fedpn.serving.bundle import Bundle
from fedpn.serving.export import export, recalibrate
from fedpn.serving.inputs import columns_of, order_of
from fedpn.serving.predict import Predictor, load, teaches

Tree = dict[str, Any]


class Rows(NamedTuple):
    """Labelled rows in the form that a model takes."""

    x: Tensor  # [N, ...]
    y: Tensor  # [N]
    units: Array | None = None  # [N], which of them belong together (`data.units`)

    @property
    def standing(self) -> Array:
        """The places of rows that stand for their units, one for each: copies count once."""
        units = of_rows(self.x.numpy()) if self.units is None else self.units
        return one_of_each(np.arange(len(units)), units, seeds.stream("standing", 0))


def read_labelled(spec: str, bundle: Bundle, label: str = "", group: str = "") -> Rows:
    """Reads labelled rows as a run would: its columns and classes, its size of pictures."""
    shape = tuple(bundle.blueprint.shape)
    size = shape[-1] if len(shape) == 3 and shape[1] == shape[2] else None
    ways = ways_of(bundle.about.recipe)
    wanted = Wanted(label or None, None, bundle.features, ways=ways, group=group or None, least=1)
    dataset = recode(read_dataset(spec, size, wanted), bundle.classes)
    if bundle.about.recipe is not None and dataset.features:  # else rows that are prepared already
        dataset = prepared(dataset, bundle.about.recipe)
    if dataset.is_raw:
        raise UserError(f"{spec} has cells that are no numbers, and the model knows numbers alone")
    if dataset.shape != shape:
        raise UserError(
            f"{spec} has rows of the shape {dataset.shape}, and the model takes {shape}"
        )
    if not len(dataset):
        raise UserError(f"{spec} has no rows; give at least one")
    order = None
    if Path(spec).suffix.lower() == ".npz" and len(shape) == 1:
        with npz.opened(Path(spec).expanduser()) as file:
            order = order_of(Path(spec), file, columns_of(bundle.features, bundle.about.recipe))
    x = dataset.x if order is None else dataset.x[:, order]
    return Rows(torch.from_numpy(x), torch.from_numpy(dataset.y), dataset.group)


def calibrate(path: Path, client: str | None, rows: Rows, out: Path, **changes: Any) -> Standards:
    """Writes a client's folder anew, its thresholds and promises learned from labelled rows.

    `changes` are settings of routing, such as `risk=0.05`; models and prior stay as they are.
    """
    predictor = load(path, client)
    bundle = predictor.bundle
    settings = replace(bundle.about.routing or RoutingSettings(), **changes)
    place = torch.from_numpy(rows.standing)
    x, held = rows.x[place], bundle.standards
    views = predictor.views(x)
    elsewhere = float(held.elsewhere) or -1.0  # whether others have new rows nobody can look for
    lesson = Lesson(views, rows.y[place], held.counts, bundle.pool or None, elsewhere)
    rule, standards = teach(type(bundle.rule) if bundle.rule else None, lesson, settings)
    seen = count_outcomes(rule, views, standards, predictor.strangers(x))
    standards = standards._replace(seen=seen)
    export(path, client, out)
    recalibrate(out, rule, standards, settings)
    return standards


def score(predictor: Predictor, rows: Rows, own_share: float | None = None) -> Tree:
    """Judges a client's answers to labelled rows."""
    views = predictor.views(rows.x)
    strange = predictor.strangers(rows.x)
    share = predictor.find_share(views, own_share, teaches(rows.x, strange))
    decision, _ = predictor.decide(views._replace(share=share), strange)
    wrong, answered = decision.label != rows.y, decision.answered
    outcomes = torch.bincount(decision.outcome, minlength=len(OUTCOMES)).double() / len(rows.y)
    standing = torch.zeros(len(wrong)).bool()
    standing[torch.from_numpy(rows.standing)] = True
    told: Tree = {
        "rows": len(rows.y),
        "groups": int(standing.sum()),
        "own_share": share,
        "answered": float(answered.double().mean()),
        "wrong of the answered": _mean(wrong[answered & standing]),
        "accuracy, were all answered": metrics.accuracy(decision.label, rows.y),
        "balanced_accuracy": metrics.balanced_accuracy(decision.label, rows.y),
        "auroc": metrics.auroc_of_classes(decision.probs, rows.y),
        "majority_share": metrics.majority_share(rows.y),
        "ece": metrics.ece(decision.probs, rows.y),
        "nll": metrics.nll(decision.probs, rows.y),
        "aurc": metrics.aurc(decision.total, wrong),
        "outcomes": dict(zip(OUTCOMES, outcomes.tolist(), strict=True)),
    }
    standards = predictor.bundle.standards
    if standards.promises is not None:
        told["promised"] = float(standards.asked[0])
    if decision.classes is not None:
        hit = decision.classes.gather(1, rows.y[:, None])[:, 0]
        told["sets"] = {"missed": _mean(~hit), "size": _mean(decision.classes.sum(1))}
    classes = len(predictor.bundle.classes)
    if classes > metrics.TABULATED:
        return told
    return told | {"by_class": metrics.by_class(metrics.confusion(decision.label, rows.y, classes))}


def _mean(column: Tensor) -> float | None:
    return float(column.double().mean()) if len(column) else None
