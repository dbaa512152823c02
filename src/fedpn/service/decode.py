"""Inputs of a request -> rows in the form that a model takes, or a sentence on what is wrong."""

import base64
import binascii
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Array
from fedpn.data.recipe import LARGEST, Recipe
from fedpn.data.sources import picture
from fedpn.data.sources.csvs import Table
from fedpn.data.sources.guard import short, some
from fedpn.data.sources.table import table_rows
from fedpn.serving.bundle import Bundle

PREFIXES = ("data:image/", "data:application/dicom")


class Decoded(NamedTuple):
    """Inputs of a request as a model takes them."""

    rows: Array
    given: list[Any]  # of a table, the values in the order of its columns; else pixels
    faults: list[str]  # for each row, the cell that is no number; "" where there is none
    remarks: tuple[str, ...] = ()


def decode(
    inputs: Sequence[Any],
    shape: Sequence[int],
    features: Sequence[str],
    recipe: Recipe | None = None,
    first: int = 0,
) -> Decoded:
    """Rows of a table by name or in order, nested lists of pixels, or pictures as base64.

    `first` is the number of the first, by which messages name them.
    """
    form = tuple(shape)
    if len(form) == 3:
        pixels = [_picture(value, f"input {i}", form) for i, value in enumerate(inputs, first)]
        return Decoded(np.stack(pixels), pixels, [""] * len(pixels))
    names = tuple(features) or tuple(str(i) for i in range(form[0]))
    by_name = bool(features)
    rows = [_values(value, f"input {i}", names, by_name) for i, value in enumerate(inputs, first)]
    if recipe is None:
        x = np.stack([_numbers(row, f"input {i}", names) for i, row in enumerate(rows, first)])
        return Decoded(x, rows, _faults(x, rows, dict.fromkeys(names, "number"), names))
    columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
    found = table_rows("the request", Table(columns, lambda i: f"input {first + i}"), names, recipe)
    kinds = {column.name: column.kind for column in recipe.columns if not column.is_category}
    return Decoded(found.x, rows, _faults(found.x, rows, kinds, names), found.remarks)


def _faults(
    x: Array, rows: Sequence[list[Any]], kinds: Mapping[str, str], names: Sequence[str]
) -> list[str]:
    """Names the first cell of each row that became no number; `kinds` are of x's first columns."""
    faults = [""] * len(rows)
    plain, wrong = list(kinds), ~np.isfinite(x[:, : len(kinds)])
    for i in np.flatnonzero(wrong.any(axis=1)).tolist():
        name = plain[int(wrong[i].argmax())]
        value = rows[i][names.index(name)]
        large = " that 32 bits hold" if _is_large(value) else ""
        faults[i] = f"{short(name)!r} is {_shown(value)}, which is no {kinds[name]}{large}"
    return faults


def _is_large(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) > LARGEST


def _shown(value: Any) -> str:
    """A value as JSON has it, if it is not too long.

    >>> _shown("n.n."), _shown(None), _shown(10**400)
    ("'n.n.'", 'null', '1000000000000000000000000000000000000000…')
    """
    return repr(short(value)) if isinstance(value, str) else short(json.dumps(value))


def _values(row: Any, what: str, names: Sequence[str], by_name: bool) -> list[Any]:
    """The values of a row, in the order of the columns."""
    if isinstance(row, Mapping):
        if not by_name:
            raise UserError(f"{what} names columns, and this model has none")
        row = {composed(name): value for name, value in row.items()}
        _check_names(row, what, names)
        row = [row[name] for name in names]
    if not isinstance(row, list) or len(row) != len(names):
        columns = f"; they are {some(names)}" if by_name else ""
        raise UserError(f"{what} is no row of {len(names)} values{columns}")
    for name, value in zip(names, row, strict=True):
        if value is not None and not isinstance(value, str | int | float):
            raise UserError(f"{what} has a list or an object in {name!r}, which takes one value")
    return row


def _numbers(row: list[Any], what: str, names: Sequence[str]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            # What float32 cannot hold is a stranger, not a crash.
            return np.asarray(row, dtype=np.float64).astype(np.float32)
        except (ValueError, OverflowError):
            name, value = next((n, v) for n, v in zip(names, row, strict=True) if not _is_number(v))
    raise UserError(
        f"{what} has {_shown(value)} in the column {short(name)!r}, which takes numbers"
    )


def _is_number(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except (ValueError, OverflowError):
        return False
    return True


def _picture(value: Any, what: str, shape: tuple[int, ...]) -> Array:
    if isinstance(value, bytes | str):
        content = _from_base64(value, what) if isinstance(value, str) else value
        return picture.from_bytes(content, what, shape)
    if isinstance(value, Mapping):
        raise UserError(f"{what} names columns, and this model has none")
    return _pixels(value, what, shape)


def _from_base64(text: str, what: str) -> bytes:
    if text.startswith(PREFIXES):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError(f"{what} is a text, but no picture as base64") from None


def _check_names(row: Mapping[str, Any], what: str, features: Sequence[str]) -> None:
    absent = [name for name in features if name not in row]
    extra = [name for name in row if name not in features]
    if absent or extra:
        told = f"lacks {', '.join(absent[:8])}" if absent else f"has no use for {extra[0]!r}"
        raise UserError(f"{what} {told}; the columns are {', '.join(features[:20])}")


def _pixels(value: Any, what: str, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{what} is not a list of numbers, all rows of one length") from None
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


def pack(given: Any, features: Sequence[str]) -> bytes:
    """An input as decisions keep it: the pixels of a picture, or a row by the names of its columns.

    >>> pack([61, None], ["age", "pulse"])
    b'{"age": 61, "pulse": null}'
    """
    if isinstance(given, np.ndarray):
        file = io.BytesIO()
        np.save(file, given, allow_pickle=False)
        return file.getvalue()
    row = dict(zip(features, given, strict=True)) if features else given
    return json.dumps(row).encode()


def unpack(decision: Mapping[str, Any], shape: Sequence[int]) -> Any:
    """The input of a decision: pixels, a row by column, or a list where columns have no names.

    Before decisions had a version they kept bare bytes, of which pictures alone can be read.
    """
    content: bytes = decision["input"]
    if decision["version"] is None:
        if len(shape) != 3 or len(content) != math.prod(shape):
            raise UserError(
                f"input {decision['id']} was kept by an older fedpn, without names of columns"
            )
        return np.frombuffer(content, np.uint8).reshape(tuple(shape))
    if content.startswith(np.lib.format.MAGIC_PREFIX):
        return np.load(io.BytesIO(content), allow_pickle=False)
    return json.loads(content)


def read_again(decision: Mapping[str, Any], bundle: Bundle) -> Array:
    """A labelled input in the form that these models take, whichever version answered it."""
    what = f"input {decision['id']}"
    shape, features = tuple(bundle.blueprint.shape), bundle.features
    if decision["truth"] not in bundle.classes:
        raise UserError(f"{what} has the label {decision['truth']!r}, no class of these models")
    given = unpack(decision, shape)
    if isinstance(given, np.ndarray):
        if given.shape != shape:
            raise UserError(f"{what} has the shape {given.shape}, and these models take {shape}")
        pixels: Array = given
        return pixels
    if isinstance(given, dict):  # columns that these models have no use for are no mistake
        given = {name: value for name, value in given.items() if name in features}
    elif decision["version"] != bundle.version:
        raise UserError(f"{what} is for version {decision['version']}, without names of columns")
    found = decode([given], shape, features, bundle.about.recipe, first=decision["id"])
    if not np.isfinite(found.rows).all():
        raise UserError(f"{what}: {found.faults[0]}")
    row: Array = found.rows[0]
    return row


def to_png(pixels: Array) -> bytes:
    """A picture, [C, H, W], as a file."""
    from PIL import Image

    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
