"""FEMNIST as LEAF makes it: files of JSON in which every writer has pictures and labels.

No publisher tells checksums of them, so they are read from where the user has them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, Dataset
from fedpn.data.sources.class_names import CHARACTERS
from fedpn.data.sources.folder import entries
from fedpn.data.sources.guard import fits, plain_file
from fedpn.data.sources.labels import name_values

ENDING = ".json"
PARTS = ("train", "test")
SIDE, KINDS = 28, len(CHARACTERS)
MOST = 1 << 29  # bytes of one file; LEAF's, of 100 writers each, have a third of it
Writers = dict[str, tuple[Array, Array]]  # bytes [N, 28, 28] and class numbers


def leaf_files(path: Path) -> list[Path]:
    """The files of a folder that LEAF has made, in `train` and `test` or in itself; else none."""
    parts = [path / part for part in PARTS if (path / part).is_dir()] or [path]
    found = [file for part in parts for file in entries(part)]
    return found if all(file.suffix.lower() == ENDING for file in found) else []


def load_leaf(path: Path) -> Dataset:
    """Reads FEMNIST from a file, or from all files of a folder; writers are the clients."""
    files = leaf_files(path) if path.is_dir() else [path]
    images, labels, owners = [], [], []
    for file in files:
        for writer, (pixels, numbers) in _read(file).items():
            images.append(pixels)
            labels.append(numbers)
            owners += [writer] * len(numbers)
            fits(sum(len(part) for part in images) * SIDE * SIDE, f"{path}", "take fewer writers")
    if not owners:
        raise UserError(f"{path} holds no pictures of any writer; make it again by LEAF")
    present, y = np.unique(np.concatenate(labels), return_inverse=True)
    if len(present) < 2:
        raise UserError(f"{path} holds one class only; at least 2 are needed to learn anything")
    client, clients = name_values(np.array(owners), f"the writers of {path}")
    return Dataset(
        path.resolve().stem,
        np.concatenate(images)[:, None],
        y.astype(np.int64),
        tuple(CHARACTERS[i] for i in present),
        client,
        clients,
        remarks=_remarks(files, len(present)),
    )


def _remarks(files: list[Path], classes: int) -> tuple[str, ...]:
    parts = sorted({file.parent.name for file in files} & set(PARTS))
    told = [f"the folders {', '.join(parts)} were pooled; rows are dealt afresh"] * (len(parts) > 1)
    if classes < KINDS:
        told.append(f"{classes} of FEMNIST's {KINDS} classes occur")
    return tuple(told)


def _read(path: Path) -> Writers:
    """What one file holds, by writer."""
    plain_file(path, MOST)
    try:
        with path.open(encoding="utf-8") as file:
            writers = json.load(file)["user_data"]
        return {name: _rows(rows["x"], rows["y"]) for name, rows in writers.items()}
    except Exception as error:  # anything may stand where rows should
        raise UserError(
            f"{path} is not FEMNIST as LEAF makes it: `user_data` has, for each writer, `x`, rows "
            f"of {SIDE * SIDE} numbers from 0 to 1, and `y`, class numbers below "
            f"{KINDS}; make it again"
        ) from error


def _rows(x: Any, y: Any) -> tuple[Array, Array]:
    """Pictures as bytes, and their labels, if there is one for each."""
    with np.errstate(over="ignore"):
        shares = np.asarray(x, np.float32).reshape(len(x), SIDE, SIDE)
    numbers = np.asarray(y, None if y else np.int64)
    if numbers.shape != (len(x),) or numbers.dtype.kind not in "iu":
        raise ValueError("labels")
    if not ((shares >= 0) & (shares <= 1)).all() or not ((numbers >= 0) & (numbers < KINDS)).all():
        raise ValueError("range")
    return np.rint(shares * 255).astype(np.uint8), numbers.astype(np.int64)
