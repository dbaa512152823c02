"""One's own data: a NumPy archive, a table, a folder of images, LEAF's JSON -> pooled rows."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.data.dataset import Dataset
from fedpn.data.sources import archive, datasets, picture, table
from fedpn.data.sources.folder import load_folder
from fedpn.data.sources.guard import plain_file
from fedpn.data.sources.labels import twins
from fedpn.data.sources.leaf import ENDING as LEAF
from fedpn.data.sources.leaf import leaf_files, load_leaf
from fedpn.data.sources.table import ALL, Wanted
from fedpn.data.units import of_names

ENDINGS = (".npz", *table.READERS, LEAF)


def open_dataset(
    spec: str,
    image_size: int | None = None,
    label: str | None = None,
    client: str | None = None,
    features: Sequence[str] = (),
) -> Dataset:
    """Opens a named set, or one's own data by their path.

    A spec is a path if it holds a slash or ends like a file; a bare word is a name first, and
    then a folder. Of a table, `label`, `client` and `features` name columns.

    >>> open_dataset("digits").name
    'digits'
    """
    return read_dataset(spec, image_size, Wanted(label, client, tuple(features)))


def read_dataset(spec: str, image_size: int | None, wanted: Wanted) -> Dataset:
    """The same, with all that may be asked of a table."""
    if is_path(spec):
        return load_own(_at_home(spec), image_size, wanted)
    return _resized(datasets.load(spec), image_size)


def is_path(spec: str) -> bool:
    """Tells a path from a name.

    >>> is_path("mnist"), is_path("my/mnist"), is_path("wine.csv")
    (False, True, True)
    """
    if "/" in spec or "\\" in spec or Path(spec).suffix.lower() in ENDINGS:
        return True
    try:
        return Path(spec).is_dir() and spec not in datasets.names()
    except OSError:  # no file could have such a name
        return False


def holds_table(spec: str) -> bool:
    """Return whether data are rows of columns rather than images, read from their names alone.

    >>> holds_table("wine.csv"), holds_table("mnist")
    (True, False)
    """
    path = _at_home(spec) if is_path(spec) else datasets.find(spec)
    if path is None or path.suffix.lower() != ".npz":
        return path is not None and path.suffix.lower() in table.READERS
    return path.is_file() and archive.is_table(path)


def _at_home(spec: str) -> Path:
    try:
        return Path(spec).expanduser()
    except RuntimeError as error:
        raise UserError(f"{spec} is in the home of nobody who is known here") from error


def load_own(
    path: Path,
    image_size: int | None = None,
    wanted: Wanted = ALL,
) -> Dataset:
    """Reads one's own data; `Dataset.remarks` tell what was done to them.

    `image_size` is the side of square images.
    """
    dataset = _load(path, image_size, wanted)
    told = (*twins(dataset.classes, "classes"), *twins(dataset.clients, "clients"))
    return replace(dataset, remarks=(*dataset.remarks, *told))


def _load(path: Path, image_size: int | None, wanted: Wanted) -> Dataset:
    if image_size is not None and image_size < 1:
        raise UserError(f"data.image_size is {image_size}; it needs at least 1 pixel")
    if not os.path.lexists(path):
        raise UserError(f"there is no file or folder {path}; check the path")
    if path.is_dir():
        is_leaf = bool(leaf_files(path))
        return _resized(load_leaf(path), image_size) if is_leaf else load_folder(path, image_size)
    plain_file(path)
    ending = path.suffix.lower()
    if ending in table.READERS:
        return table.load_table(path, wanted)
    if ending == ".npz":
        return _resized(_load_npz(path), image_size)
    if ending == LEAF:
        return _resized(load_leaf(path), image_size)
    raise UserError(
        f"{path} ends with {ending or 'nothing'!r}; own data are a folder of images by class, "
        f"or a file that ends with {', '.join(ENDINGS)}"
    )


def _load_npz(path: Path) -> Dataset:
    content = archive.read(path)
    parts = ", ".join(part for part in content.rows if part)
    pooled = (f"the parts {parts} were pooled; rows are dealt afresh",) if parts else ()
    return Dataset(
        path.stem,
        content.x,
        content.y,
        content.classes,
        content.client,
        content.clients,
        remarks=content.remarks + pooled,
        group=None if content.group is None else of_names(content.group),
        groups="" if content.group is None else "group",
    )


def _resized(dataset: Dataset, size: int | None) -> Dataset:
    if size is None or dataset.x.ndim == 2 or dataset.shape[1:] == (size, size):
        return dataset
    height, width = dataset.shape[1:]
    remark = f"{len(dataset)} images of {width}×{height} were resized to {size}×{size}"
    return replace(
        dataset, x=picture.resize(dataset.x, (size, size)), remarks=(*dataset.remarks, remark)
    )
