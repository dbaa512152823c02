"""What a dataset is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from fedpn.data.cells import CELL
from fedpn.data.recipe import Recipe, Style

Array = NDArray[Any]


@dataclass(frozen=True)
class Dataset:
    """Pooled rows: images as bytes, or numeric features, and their labels.

    `client` tells who owns each row, where the data say so, and `group` which rows belong together
    (`units`): by what `groups` names, or as exact copies where that is ""; `note` is a line worth
    showing beside every figure (that the file holds a subset, say); `remarks` tell what was done to
    the data on the way in (that images were resized, say).

    A table whose cells are not all numbers is raw until all clients together have learned a recipe
    for its columns; `words` and `styles` tell how its own cells are written.
    """

    name: str
    x: Array  # uint8 [N, C, H, W], or float32 [N, F], or raw cells [N, F]
    y: Array  # int64 [N]
    classes: tuple[str, ...]
    client: Array | None = None  # int64 [N]
    clients: tuple[str, ...] = ()  # their names
    features: tuple[str, ...] = ()  # of a table, the names of its columns
    note: str = ""
    remarks: tuple[str, ...] = ()
    recipe: Recipe | None = None  # by which a table was prepared, where it had to be
    words: Mapping[float, str] = field(default_factory=dict)
    styles: Mapping[str, Style] = field(default_factory=dict)
    group: Array | None = None  # int64 [N]; None: each row stands for itself
    groups: str = ""

    @property
    def is_raw(self) -> bool:
        """Whether columns have yet to be prepared."""
        return self.x.dtype == CELL

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.x.shape[1:])

    def __len__(self) -> int:
        return len(self.y)


def channels_first(images: Array) -> Array:
    """Views [N, H, W] and [N, H, W, C] as [N, C, H, W]; at most four channels tell them apart.

    >>> import numpy as np
    >>> channels_first(np.zeros((2, 8, 8))).shape, channels_first(np.zeros((2, 8, 8, 3))).shape
    ((2, 1, 8, 8), (2, 3, 8, 8))
    >>> channels_first(np.zeros((2, 3, 8, 8))).shape
    (2, 3, 8, 8)
    """
    if images.ndim == 3:
        return images[:, None]
    return images.transpose(0, 3, 1, 2) if images.shape[3] <= 4 else images
