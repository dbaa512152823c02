"""Inputs to be answered: an .npz, a table, or a folder of images."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.recipe import Recipe
from fedpn.data.sources import npz, picture
from fedpn.data.sources.guard import plain_file, some
from fedpn.data.sources.npz import Archive
from fedpn.data.sources.rows import as_rows
from fedpn.data.sources.shades import COLOUR, GREY
from fedpn.data.sources.table import READERS, Part, read_parts

PART = 4096  # rows that are read at once
ENDINGS = sorted(picture.ENDINGS)


class Inputs(NamedTuple):
    """A name and a row for each input, what was done to them, and columns that pass through."""

    names: list[str]
    rows: Array
    remark: str = ""
    others: dict[str, list[Any]] = {}  # noqa: RUF012


def read_inputs(
    path: Path, shape: Sequence[int], features: Sequence[str] = (), recipe: Recipe | None = None
) -> Inputs:
    """Reads inputs for a model that takes rows of this shape; of a table, these columns."""
    parts = list(input_parts(path, shape, features, recipe=recipe))
    if not parts:
        raise UserError(f"{path} has no rows; give at least one")
    names = [name for part in parts for name in part.names]
    return Inputs(names, np.concatenate([part.rows for part in parts]), parts[0].remark)


def input_parts(
    path: Path,
    shape: Sequence[int],
    features: Sequence[str] = (),
    others: Sequence[str] = (),
    rows: int = PART,
    recipe: Recipe | None = None,
) -> Iterator[Inputs]:
    """The same, so many rows at a time: memory does not grow with what there is to read."""
    if path.is_dir():
        yield from _folder(path, shape, rows)
        return
    if not os.path.lexists(path):
        raise UserError(f"there is no file or folder {path}")
    plain_file(path)
    ending = path.suffix.lower()
    if others and ending not in READERS:
        raise UserError(f"--id names columns, and {path} is no table")
    if ending == ".npz":
        yield from _npz(path, shape, rows, columns_of(features, recipe))
    elif ending in READERS:
        if len(shape) != 1:
            raise UserError(f"{path} is a table, but this model takes images")
        yield from _table(read_parts(path, features, others, rows, recipe))
    elif picture.is_picture(path):
        yield from _pictures([path], path.parent, shape, rows)
    else:
        raise UserError(
            f"{path} is neither a folder nor a file in .npz, {', '.join((*READERS, *ENDINGS))}"
        )


def columns_of(features: Sequence[str], recipe: Recipe | None) -> tuple[str, ...]:
    """What each number of a row is that a model takes, where that has a name."""
    return tuple(features) if recipe is None else recipe.features


def order_of(path: Path, file: Archive, names: Sequence[str]) -> list[int] | None:
    """Where the columns that a model takes stand in an archive that names its own."""
    if not names or "columns" not in file.heads or file.heads["columns"].dtype.kind != "U":
        return None
    found = file["columns"].ravel().tolist()
    if found == list(names):
        return None
    if sorted(found) != sorted(names):
        strange = sorted(set(found) ^ set(names)) or found
        raise UserError(
            f"{path} was written for other columns than the model takes ({some(strange)}): write "
            "it again with `fedpn reviews`"
        )
    return [found.index(name) for name in names]


def _npz(
    path: Path, shape: Sequence[int], rows: int, columns: Sequence[str] = ()
) -> Iterator[Inputs]:
    with npz.opened(path) as file:
        found = [key for key in ("images", "x") if key in file.heads]
        if not found:
            held = some(file.heads) or "nothing"
            raise UserError(f"{path} has no array `images` or `x`, only {held}")
        head, first, order = file.heads[found[0]], 0, order_of(path, file, columns)
        # Whether pixels are bytes or shares can be told from all of them alone.
        sure = len(head.shape) == 2 or head.dtype == np.uint8
        for x in file.parts(found[0], rows) if sure else [file[found[0]]]:
            part, _ = as_rows(x, f"{path}")  # in whatever form a run would take them
            part = part if order is None else part[:, order]
            names, remark = [str(first + i) for i in range(len(part))], ""
            if part.ndim == 4 and len(shape) == 3 and part.shape[1] == shape[0]:
                size, old = (shape[2], shape[1]), (part.shape[3], part.shape[2])
                part = picture.resize(part, size)  # as a run does under data.image_size
                remark = _resized(head.shape[0], {old}, size)
            first += len(part)
            if len(part):
                yield Inputs(names, part, remark)


def _table(parts: Iterable[Part]) -> Iterator[Inputs]:
    first = 0
    for part in parts:
        names = [str(first + i) for i in range(len(part.features))]
        first += len(names)
        yield Inputs(names, part.features, part.remark, part.others)


def _folder(path: Path, shape: Sequence[int], rows: int) -> Iterator[Inputs]:
    if len(shape) != 3:
        raise UserError(f"{path} is a folder of images, but this model takes rows of a table")
    files = sorted(p for p in path.rglob("*") if picture.is_picture(p))
    if not files:
        raise UserError(f"{path} holds no images ({', '.join(ENDINGS)})")
    yield from _pictures(files, path, shape, rows)


def _pictures(
    files: Sequence[Path], root: Path, shape: Sequence[int], rows: int
) -> Iterator[Inputs]:
    """Reads pictures as training did: turned upright, in the model's form and size."""
    if len(shape) != 3:
        raise UserError(f"{files[0]} is an image, but this model takes rows of a table")
    channels, height, width = shape
    mode = GREY if channels == 1 else COLOUR
    remark = _resized(len(files), {look[:2] for look in map(picture.look, files)}, (width, height))
    for start in range(0, len(files), rows):
        part = files[start : start + rows]
        # A name that is no UTF-8 could be neither printed nor written.
        names = [os.fsencode(f.relative_to(root)).decode(errors="backslashreplace") for f in part]
        found = picture.read(part, mode, (width, height))
        yield Inputs(names, found.images, "; ".join(filter(None, (remark, *found.remarks))))


def _resized(count: int, sizes: Collection[tuple[int, ...]], size: tuple[int, int]) -> str:
    """Says so where inputs have another size than what was trained on, and what it was."""
    if set(sizes) <= {size}:
        return ""
    first, last = ("×".join(map(str, pick(sizes))) for pick in (min, max))
    spread = first if first == last else f"{first} to {last}"
    return f"{count} images of {spread} were brought to {size[0]}×{size[1]}"
