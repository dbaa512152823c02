"""What fedpn would make of one's own data."""

from pathlib import Path

import numpy as np

from fedpn.data.dataset import Dataset
from fedpn.data.partition import ENOUGH, usual
from fedpn.data.sources.own import load_own


def check(
    path: Path,
    image_size: int | None = None,
    label: str | None = None,
    client: str | None = None,
) -> list[str]:
    """Reads one's own data as a run would, and tells in lines what it found and would do."""
    dataset = load_own(path, image_size, label, client)
    counts = np.bincount(dataset.y, minlength=len(dataset.classes))
    few, many = int(counts.argmin()), int(counts.argmax())
    return [
        f"{path}: {len(dataset)} rows of {_form(dataset)}",
        f"{len(counts)} classes, "
        + (
            f"{counts[few]} rows each"
            if counts[few] == counts[many]
            else f"from {counts[few]} rows ({dataset.classes[few]}) to {counts[many]} "
            f"({dataset.classes[many]})"
        ),
        *_columns(dataset),
        *dataset.remarks,
        *_twins(dataset),
        *_copies(dataset),
        *_advice(dataset),
    ]


def _form(dataset: Dataset) -> str:
    if len(dataset.shape) == 1:
        return f"{dataset.shape[0]} features (encoder: mlp)"
    channels, height, width = dataset.shape
    kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} images of {width}×{height}"


def _columns(dataset: Dataset) -> list[str]:
    """The features by name, and those that look like none."""
    if not dataset.features:
        return []
    lines = [f"features: {', '.join(dataset.features)}"]
    kinds = [len(np.unique(column)) for column in dataset.x.T]
    whole = (dataset.x == np.round(dataset.x)).all(axis=0)
    for name, count, numbered in zip(dataset.features, kinds, whole, strict=True):
        if count == 1:
            lines.append(f"{name!r} has one value only: it tells nothing")
        elif numbered and count == len(dataset):
            lines.append(
                f"{name!r} is another whole number in each row: if it is an identifier, leave it "
                "out (data.features names those to keep)"
            )
    return lines


def _twins(dataset: Dataset) -> list[str]:
    """Names of classes that differ in their case alone."""
    first: dict[str, str] = {}
    return [
        f"the classes {first[name.casefold()]!r} and {name!r} differ in their case alone"
        for name in dataset.classes
        if first.setdefault(name.casefold(), name) != name
    ]


def _copies(dataset: Dataset) -> list[str]:
    """Equal rows may fall into training and test, and flatter every figure."""
    copies = len(dataset) - len({row.tobytes() for row in dataset.x})
    if not copies:
        return []
    return [f"{copies} rows are exact copies of others: take them away, or test rows may leak"]


def _advice(dataset: Dataset) -> list[str]:
    if dataset.client is not None:
        sizes = np.bincount(dataset.client, minlength=len(dataset.clients))
        least = int(sizes.argmin())
        lines = [
            f"{len(sizes)} clients, from {sizes[least]} rows ({dataset.clients[least]}) "
            f"to {sizes.max()}: the partition 'natural' keeps them"
        ]
        if sizes[least] < ENOUGH:
            lines.append(f"a client with less than {ENOUGH} rows cannot calibrate a 5 % threshold")
        return lines
    most = len(dataset) // ENOUGH
    if most < 2:
        return [f"too few rows for a federation: 2 clients need {2 * ENOUGH}"]
    return [
        f"no client is named: the partition {usual(dataset)!r} deals them, evenly to at most {most}"
    ]
