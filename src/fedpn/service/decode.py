"""Inputs of a request -> rows in the form that a model takes, or a sentence on what is wrong."""

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Array
from fedpn.data.recipe import Recipe
from fedpn.data.sources import picture
from fedpn.data.sources.csvs import Table
from fedpn.data.sources.guard import some
from fedpn.data.sources.table import table_rows

PREFIXES = ("data:image/", "data:application/dicom")


def decode(
    inputs: Sequence[Any],
    shape: Sequence[int],
    features: Sequence[str],
    recipe: Recipe | None = None,
) -> Array:
    """Rows of a table by name or in order, nested lists of pixels, or pictures as base64."""
    if recipe is not None:
        return _cells(inputs, features, recipe)
    return np.stack([_one(value, i, tuple(shape), features) for i, value in enumerate(inputs)])


def _cells(inputs: Sequence[Any], features: Sequence[str], recipe: Recipe) -> Array:
    """Rows whose columns are prepared: numbers, texts, true and false, or null."""
    rows = [_values(value, f"input {i}", features) for i, value in enumerate(inputs)]
    columns: dict[str, Any] = dict(zip(features, zip(*rows, strict=True), strict=True))
    found = table_rows("the request", Table(columns, lambda i: f"input {i}"), features, recipe)
    return found.x


def _values(row: Any, what: str, features: Sequence[str]) -> list[Any]:
    if isinstance(row, Mapping):
        row = {composed(name): value for name, value in row.items()}
        _check_names(row, what, features)
        row = [row[name] for name in features]
    if not isinstance(row, list) or len(row) != len(features):
        raise UserError(f"{what} is no row of {len(features)} values; they are {some(features)}")
    for name, value in zip(features, row, strict=True):
        if value is not None and not isinstance(value, str | int | float):
            raise UserError(f"{what} has a list or an object in {name!r}, which takes one value")
    return row


def _one(value: Any, place: int, shape: tuple[int, ...], features: Sequence[str]) -> Array:
    what = f"input {place}"
    if isinstance(value, bytes | str):
        if len(shape) != 3:
            kind = "text" if isinstance(value, str) else "file"
            raise UserError(f"{what} is a {kind}, and this model takes rows of numbers")
        content = _from_base64(value, what) if isinstance(value, str) else value
        return picture.from_bytes(content, what, shape)
    if isinstance(value, Mapping):
        return _by_name(value, what, shape, features)
    return _numbers(value, what, shape)


def _from_base64(text: str, what: str) -> bytes:
    if text.startswith(PREFIXES):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError(f"{what} is a text, but no picture as base64") from None


def _by_name(
    row: Mapping[str, Any], what: str, shape: tuple[int, ...], features: Sequence[str]
) -> Array:
    if len(shape) != 1 or not features:
        raise UserError(f"{what} names columns, and this model has none")
    row = {composed(name): value for name, value in row.items()}
    _check_names(row, what, features)
    return _numbers([row[name] for name in features], what, shape)


def _check_names(row: Mapping[str, Any], what: str, features: Sequence[str]) -> None:
    absent = [name for name in features if name not in row]
    extra = [name for name in row if name not in features]
    if absent or extra:
        told = f"lacks {', '.join(absent[:8])}" if absent else f"has no use for {extra[0]!r}"
        raise UserError(f"{what} {told}; the columns are {', '.join(features[:20])}")


def _numbers(value: Any, what: str, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{what} is not a list of numbers, all rows of one length") from None
    if len(shape) == 1:
        if array.shape != shape:
            raise UserError(f"{what} has the shape {array.shape}; this model takes {shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(np.float32)  # what float32 cannot hold is a stranger, not a crash
    channels, height, width = shape
    forms = {(height, width): (None,), (height, width, channels): None, shape: ()}
    if array.shape not in forms or (array.ndim == 2 and channels != 1):
        raise UserError(
            f"{what} has the shape {array.shape}; this model takes {height}×{width} pixels"
            + (f" of {channels} channels" if channels > 1 else "")
        )
    if not np.isfinite(array).all() or array.min() < 0 or array.max() > 255:
        raise UserError(f"{what} has pixels that are no numbers from 0 to 255")
    pixels = np.rint(array).astype(np.uint8)
    if array.shape == shape:
        return pixels
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def to_png(pixels: Array) -> bytes:
    """A picture, [C, H, W], as a file."""
    from PIL import Image

    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
