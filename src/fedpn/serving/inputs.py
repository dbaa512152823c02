"""Inputs to be answered: an .npz, a table, or a folder of images."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources import npz, picture
from fedpn.data.sources.guard import plain_file, some
from fedpn.data.sources.rows import as_rows
from fedpn.data.sources.table import READERS, read_features

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


class Inputs(NamedTuple):
    """A name and a row for each input, and what was done to them."""

    names: list[str]
    rows: Array
    remark: str = ""


def read_inputs(path: Path, shape: Sequence[int], features: Sequence[str] = ()) -> Inputs:
    """Reads inputs for a model that takes rows of this shape; of a table, these columns."""
    if path.is_dir():
        return _folder(path, shape)
    if not os.path.lexists(path):
        raise UserError(f"there is no file or folder {path}")
    plain_file(path)
    ending = path.suffix.lower()
    if ending == ".npz":
        return _npz(path, shape)
    if ending in READERS:
        return _table(path, shape, features)
    raise UserError(f"{path} is neither a folder nor a file in .npz, {', '.join(READERS)}")


def _npz(path: Path, shape: Sequence[int]) -> Inputs:
    with npz.opened(path) as file:
        found = [key for key in ("images", "x") if key in file.heads]
        if not found:
            held = some(file.heads) or "nothing"
            raise UserError(f"{path} has no array `images` or `x`, only {held}")
        x = file[found[0]]
    rows, _ = as_rows(x, f"{path}")  # in whatever form a run would take them
    if len(rows) == 0:
        raise UserError(f"{path} has no rows in {found[0]!r}; give at least one")
    names, remark = [str(i) for i in range(len(rows))], ""
    if rows.ndim == 4 and len(shape) == 3 and rows.shape[1] == shape[0]:
        size, old = (shape[2], shape[1]), (rows.shape[3], rows.shape[2])
        rows = picture.resize(rows, size)  # as a run does under data.image_size
        remark = _resized(len(rows), {old}, size)
    return Inputs(names, rows, remark)


def _table(path: Path, shape: Sequence[int], features: Sequence[str]) -> Inputs:
    if len(shape) != 1:
        raise UserError(f"{path} is a table, but this model takes images")
    x = read_features(path, features)
    return Inputs([str(i) for i in range(len(x))], x)


def _folder(path: Path, shape: Sequence[int]) -> Inputs:
    """Reads pictures as training did: turned upright, in the model's form and size."""
    if len(shape) != 3:
        raise UserError(f"{path} is a folder of images, but this model takes rows of a table")
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGES)
    if not files:
        raise UserError(f"{path} holds no images ({', '.join(sorted(IMAGES))})")
    channels, height, width = shape
    mode = picture.GREY if channels == 1 else picture.COLOUR
    remark = _resized(len(files), {look[:2] for look in map(picture.look, files)}, (width, height))
    # A name that is no UTF-8 could be neither printed nor written.
    names = [os.fsencode(f.relative_to(path)).decode(errors="backslashreplace") for f in files]
    return Inputs(names, picture.read(files, mode, (width, height)), remark)


def _resized(count: int, sizes: Collection[tuple[int, ...]], size: tuple[int, int]) -> str:
    """Says so where inputs have another size than what was trained on, and what it was."""
    if set(sizes) <= {size}:
        return ""
    first, last = ("×".join(map(str, pick(sizes))) for pick in (min, max))
    spread = first if first == last else f"{first} to {last}"
    return f"{count} images of {spread} were brought to {size[0]}×{size[1]}"
