"""Inputs in Python's hands -> rows in the form that a model was trained on."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Array
from fedpn.data.sources import picture
from fedpn.data.sources.csvs import Table
from fedpn.data.sources.guard import plain_file
from fedpn.data.sources.rows import as_rows
from fedpn.data.sources.table import of_frame, table_rows
from fedpn.serving.bundle import Bundle


def conform(inputs: Array, shape: Sequence[int], prepared: bool = False) -> Array:
    """Brings inputs to the form that a model was trained on, or says what is wrong with them.

    Rows that were prepared by a recipe stay as they are, though one may be no number: such a row is
    answered by nobody.

    >>> conform(np.zeros((2, 28, 28), np.uint8), (1, 28, 28)).shape
    (2, 1, 28, 28)
    >>> conform(np.zeros((2, 5), np.uint8), (5,)).dtype
    dtype('float32')
    """
    if prepared and inputs.shape[1:] == tuple(shape):
        return np.ascontiguousarray(inputs, np.float32)
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


def as_array(inputs: Any, bundle: Bundle) -> Array:
    """Pictures, columns by name, or numbers as they stand."""
    several = inputs if isinstance(inputs, list | tuple) else [inputs]
    if several and all(isinstance(one, bytes | str | Path) or _is_pillow(one) for one in several):
        if len(bundle.blueprint.shape) != 3:
            raise UserError("inputs are pictures, and this model takes rows of a table")
        return np.stack([_picture(one, bundle.blueprint.shape) for one in several])
    if not bundle.features:
        return np.asarray(inputs)
    if hasattr(inputs, "columns"):
        return _rows(of_frame(inputs), bundle)
    if several and all(isinstance(one, Mapping) for one in several):
        return _rows(_by_name(several, bundle), bundle)
    if bundle.about.recipe is None:
        return np.asarray(inputs)
    return _rows(_in_order(inputs, bundle), bundle)


def _rows(table: Table, bundle: Bundle) -> Array:
    return table_rows("the input", table, bundle.features, bundle.about.recipe).x


def _by_name(rows: Sequence[Mapping[str, Any]], bundle: Bundle) -> Table:
    rows = [{composed(str(name)): value for name, value in row.items()} for row in rows]
    there = {name for row in rows for name in row}  # what no row has is not missing but misspelt
    columns = {n: [row.get(n) for row in rows] for n in bundle.features if n in there}
    return Table(columns, lambda row: f"row {row} of the inputs")  # type: ignore[arg-type]


def _in_order(inputs: Any, bundle: Bundle) -> Table:
    """Rows without names, their values in the order of the columns."""
    rows = np.asarray(inputs, dtype=object)
    if rows.ndim != 2 or rows.shape[1] != len(bundle.features):
        raise UserError(
            f"inputs have the shape {rows.shape}; this model takes [N, {len(bundle.features)}]: "
            f"{', '.join(bundle.features[:20])}"
        )
    columns: dict[str, Any] = dict(zip(bundle.features, rows.T, strict=True))
    return Table(columns, lambda row: f"row {row} of the inputs")


def _is_pillow(value: Any) -> bool:
    return hasattr(value, "getbands") and hasattr(value, "save")


def _picture(value: Any, shape: Sequence[int]) -> Array:  # [C, H, W]
    if _is_pillow(value):
        return picture.from_pillow(value, "a picture", shape)
    if isinstance(value, bytes):
        return picture.from_bytes(value, "a picture", shape)
    path = Path(value)
    plain_file(path)
    return picture.from_bytes(path.read_bytes(), str(path), shape)
