"""A dataset as a NumPy archive: images and labels, whole or in parts.

Arrays are named `images` (or `x`) and `labels` (or `y`), with optional `client` and `group`; a set
that comes in parts has `train_images`, `train_labels`, `val_…`, `test_…` instead. `classes` may
name the classes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources.guard import some
from fedpn.data.sources.labels import Place, encode, name_values
from fedpn.data.sources.npz import Archive, Header, opened
from fedpn.data.sources.rows import as_rows

PARTS = ("", "train", "val", "test")  # the first is a set that is whole


class Part(NamedTuple):
    """The names of the arrays of one part, and how many rows it has."""

    name: str
    images: str
    labels: str
    client: str
    group: str
    rows: int


class Content(NamedTuple):
    x: Array
    y: Array
    classes: tuple[str, ...]
    client: Array | None
    clients: tuple[str, ...]
    group: Array | None  # names, by row
    rows: dict[str, int]  # by part
    remarks: tuple[str, ...]


def parts(path: Path, heads: Mapping[str, Header]) -> list[Part]:
    """Finds images with their labels."""
    found = [
        Part(name, images, *_companions(path, name, heads), heads[images].shape[0])
        for name in PARTS
        for images in (_key(name, "images"), _key(name, "x"))
        if images in heads and heads[images].shape
    ]
    if not found:
        raise UserError(
            f"{path} holds {some(heads) or 'nothing'}; name its arrays 'images' and 'labels' "
            "(or 'train_images', 'train_labels', 'test_images' …)"
        )
    if len({part.name for part in found}) < len(found) or (found[0].name == "" and found[1:]):
        names = " and ".join(part.images for part in found)
        raise UserError(f"{path} holds {names}; keep either one whole set or its parts")
    for part in found:
        _check_lengths(path, part, heads)
    return found


def is_table(path: Path) -> bool:
    """Return whether the rows are vectors, read from the heads of the arrays alone."""
    with opened(path) as file:
        return len(file.heads[parts(path, file.heads)[0].images].shape) == 2


def read(path: Path) -> Content:
    """Reads part by part, so that few bytes are held twice."""
    with opened(path) as file:
        heads = file.heads
        found = parts(path, heads)
        x, remarks = _read_rows(path, file, found)
        labels = _pooled(path, file, [part.labels for part in found])
        y, classes = encode(labels, f"{found[0].labels} of {path}", _place(path, found, "labels"))
        if "classes" in heads:
            classes = _class_names(path, file["classes"], len(classes))
        named = _read_names(path, file, found, heads, "client")
        client, clients = (
            (None, ())
            if named is None
            else name_values(named, f"client of {path}", _place(path, found, "client"))
        )
        group = _read_names(path, file, found, heads, "group")
    rows = {part.name: part.rows for part in found}
    return Content(x, y, classes, client, clients, group, rows, remarks)


def _key(part: str, name: str) -> str:
    return f"{part}_{name}" if part else name


def _companions(path: Path, part: str, heads: Mapping[str, Header]) -> tuple[str, str, str]:
    names = (_key(part, "labels"), _key(part, "y"))
    labels = next((name for name in names if name in heads), None)
    if labels is None:
        raise UserError(f"{path} holds no {names[0]!r}; every row needs a label")
    return labels, _key(part, "client"), _key(part, "group")


def _check_lengths(path: Path, part: Part, heads: Mapping[str, Header]) -> None:
    for name in (part.labels, part.client, part.group):
        if name not in heads:
            continue
        shape = heads[name].shape
        if shape not in ((part.rows,), (part.rows, 1)):
            raise UserError(
                f"{name!r} of {path} has the shape {shape} beside {part.rows} rows of "
                f"{part.images!r}; it needs one value a row"
            )
    if part.rows == 0:
        raise UserError(f"{part.images!r} of {path} is empty")


def _read_rows(path: Path, file: Archive, found: list[Part]) -> tuple[Array, tuple[str, ...]]:
    start, remarks, pooled = 0, [], np.empty(0)
    for part in found:
        rows, remark = as_rows(file[part.images], f"{part.images} of {path}")
        if start == 0:
            pooled = np.empty((sum(p.rows for p in found), *rows.shape[1:]), rows.dtype)
        if rows.shape[1:] != pooled.shape[1:]:
            raise UserError(
                f"{part.images!r} of {path} has rows of the shape {rows.shape[1:]} and "
                f"{found[0].images!r} of {pooled.shape[1:]}; bring them to one"
            )
        pooled[start : start + part.rows] = rows
        start += part.rows
        remarks += [remark] if remark else []
    return pooled, tuple(remarks)


def _pooled(path: Path, file: Archive, names: list[str]) -> Array:
    """One value a row, of all parts."""
    found = [file[name].ravel() for name in names]
    try:
        return np.concatenate(found)
    except TypeError as error:
        kinds = " and ".join(str(array.dtype) for array in found)
        raise UserError(
            f"{' and '.join(names)} of {path} are {kinds}; give numbers or names in every part"
        ) from error


def _place(path: Path, found: list[Part], kind: str) -> Place:
    """Names a pooled row by its part."""

    def place(row: int) -> str:
        for part in found:
            if row < part.rows:
                return f"row {row} of {getattr(part, kind)!r} of {path}"
            row -= part.rows
        raise IndexError(row)

    return place


def _class_names(path: Path, names: Array, count: int) -> tuple[str, ...]:
    what = f"'classes' of {path}"
    fitting = names.dtype.kind in "US" and names.shape == (count,)
    if not fitting or len(name_values(names, what)[1]) < count:
        raise UserError(
            f"{what} is {names.dtype} of the shape {names.shape}; "
            f"it needs {count} different names, one for each class number"
        )
    return tuple(names.astype(str).tolist())


def _read_names(
    path: Path, file: Archive, found: list[Part], heads: Mapping[str, Header], kind: str
) -> Array | None:
    """Whose, or of which group, each row is; None where nothing is told."""
    arrays = [getattr(part, kind) for part in found]
    named = [name for name in arrays if name in heads]
    if not named:
        return None
    if len(named) < len(found):
        raise UserError(
            f"{path} holds {named[0]!r} but not one for every part; name the {kind} of "
            "every row or of none"
        )
    values = _pooled(path, file, arrays)
    if values.dtype.kind not in "USiu":
        raise UserError(f"{named[0]!r} of {path} is {values.dtype}; give numbers or names")
    return values
