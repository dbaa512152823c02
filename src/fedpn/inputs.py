"""Inputs to be answered: an .npz, a table, or a folder of images."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedpn.data import picture
from fedpn.data.dataset import Array
from fedpn.data.rows import as_rows
from fedpn.data.table import READERS, read_features
from fedpn.errors import UserError

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


def read_inputs(
    path: Path, shape: Sequence[int], features: Sequence[str] = ()
) -> tuple[list[str], Array]:
    """Returns a name and a row for each input; of a table, the columns `features`."""
    if path.is_dir():
        return _folder(path, shape)
    if not path.exists():
        raise UserError(f"there is no file or folder {path}")
    ending = path.suffix.lower()
    if ending == ".npz":
        return _npz(path)
    if ending in READERS:
        return _table(path, shape, features)
    raise UserError(f"{path} is neither a folder nor a file in .npz, {', '.join(READERS)}")


def _npz(path: Path) -> tuple[list[str], Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = [key for key in ("images", "x") if key in file]
            if not found:
                raise UserError(f"{path} has no array `images` or `x`, only {', '.join(file)}")
            x = file[found[0]]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is no whole .npz archive of plain arrays") from None
    if x.ndim in (3, 4):  # images, in whatever form a run would take them
        x, _ = as_rows(x, f"{path}")
    if x.ndim < 2:
        raise UserError(f"{path}: inputs have the shape {x.shape}; give one row for each input")
    return [str(i) for i in range(len(x))], x


def _table(path: Path, shape: Sequence[int], features: Sequence[str]) -> tuple[list[str], Array]:
    if len(shape) != 1:
        raise UserError(f"{path} is a table, but this model takes images")
    x = read_features(path, features)
    return [str(i) for i in range(len(x))], x


def _folder(path: Path, shape: Sequence[int]) -> tuple[list[str], Array]:
    """Reads pictures as training did: turned upright, in the model's form and size."""
    if len(shape) != 3:
        raise UserError(f"{path} is a folder of images, but this model takes rows of a table")
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGES)
    if not files:
        raise UserError(f"{path} holds no images ({', '.join(sorted(IMAGES))})")
    for file in files:
        picture.look(file)
    channels, height, width = shape
    mode = picture.GREY if channels == 1 else picture.COLOUR
    return [str(f.relative_to(path)) for f in files], picture.read(files, mode, (width, height))
