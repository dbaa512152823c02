"""Labels by an agreed list of classes: nodes that see only their own rows number them alike."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Dataset


def recode(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """Numbers the classes as the list does; a class that it lacks is an error.

    >>> mine = Dataset("mine", np.zeros((3, 2)), np.array([0, 1, 0]), ("pneumonia", "normal"))
    >>> recode(mine, ["normal", "pneumonia", "other"]).y
    array([1, 0, 1])
    """
    classes = [composed(name) for name in classes]
    if len(set(classes)) < len(classes):
        raise UserError(f"data.classes names a class twice: {', '.join(classes)}")
    strange = [name for name in dataset.classes if name not in classes]
    if strange:
        raise UserError(
            f"{dataset.name} has the class {strange[0]!r}, which data.classes does not name: "
            f"{', '.join(classes)}"
        )
    places = np.array([classes.index(name) for name in dataset.classes], dtype=np.int64)
    return replace(dataset, y=places[dataset.y], classes=tuple(classes))
