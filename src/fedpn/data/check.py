"""What fedpn would make of one's own data."""

from pathlib import Path

import numpy as np

from fedpn.data.dataset import Dataset
from fedpn.data.own import load_own
from fedpn.data.partition import ENOUGH


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
        f"{len(counts)} classes, from {counts[few]} rows ({dataset.classes[few]}) "
        f"to {counts[many]} ({dataset.classes[many]})",
        *dataset.remarks,
        *_copies(dataset),
        *_advice(dataset),
    ]


def _form(dataset: Dataset) -> str:
    if len(dataset.shape) == 1:
        return f"{dataset.shape[0]} features (encoder: mlp)"
    channels, height, width = dataset.shape
    kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} images of {width}×{height}"


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
    scheme = "classes" if len(dataset.classes) > 2 else "dirichlet"
    most = len(dataset) // ENOUGH
    if most < 2:
        return [f"too few rows for a federation: 2 clients need {2 * ENOUGH}"]
    return [f"no client is named: the partition {scheme!r} can deal to at most {most} clients"]
