"""Data that are in memory already: arrays, data frames, PyTorch datasets -> pooled rows."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, Dataset
from fedpn.data.sources.labels import encode, name_values
from fedpn.data.sources.rows import as_rows
from fedpn.data.sources.table import ALL, Wanted, of_frame, of_table
from fedpn.data.units import of_names

NAME = "in memory"
WAYS = (
    "give (x, y), (x, y, client) or (x, y, client, group) as arrays, a data frame, a PyTorch "
    "dataset of the same, a fedpn Dataset, or the name or path of a set"
)


def take(data: Any, wanted: Wanted = ALL) -> Dataset:
    """Takes data as people have them; `wanted` names columns of a frame.

    >>> take((np.zeros((4, 2)), ["a", "b", "a", "b"], ["Oslo", "Oslo", "Rome", "Rome"])).clients
    ('Oslo', 'Rome')
    """
    if isinstance(data, Dataset):
        return data
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return of_table("the frame", NAME, of_frame(data), wanted)
    grouped = isinstance(data, tuple) and len(data) == 4  # a list may be four pairs
    if grouped or (isinstance(data, tuple | list) and len(data) in (2, 3)):
        return _of_arrays(*data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return _of_items(data)
    raise UserError(f"dataset is a {type(data).__name__}: {WAYS}")


def _of_arrays(x: Any, y: Any, client: Any = None, group: Any = None) -> Dataset:
    rows, remark = as_rows(_array(x, "x"), "x")
    labels, classes = encode(_array(y, "y"), "y")
    owner: Array | None = None
    clients: tuple[str, ...] = ()
    if client is not None:
        owner, clients = name_values(_array(client, "client"), "client")
    units = None if group is None else of_names(_array(group, "group"))
    for name, values in (("y", labels), ("client", owner), ("group", units)):
        if values is not None and len(values) != len(rows):
            raise UserError(f"{name} has {len(values)} values beside {len(rows)} rows of x")
    remarks = (remark,) if remark else ()
    groups = "" if units is None else "group"
    about = {"remarks": remarks, "group": units, "groups": groups}
    return Dataset(NAME, rows, labels, classes, owner, clients, **about)  # type: ignore[arg-type]


def _of_items(data: Any) -> Dataset:
    """A PyTorch dataset of what arrays may be given of; its `classes` name the classes."""
    try:
        columns = list(zip(*(data[i] for i in range(len(data))), strict=True))
        if len(columns) not in (2, 3, 4):
            raise ValueError(f"an item has {len(columns)} parts")
        x = np.stack([np.asarray(cell) for cell in columns[0]])
        names = [np.array([np.asarray(c).item() for c in column]) for column in columns[1:]]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise UserError(
            f"dataset is a {type(data).__name__} whose items are no (x, y), (x, y, client) or "
            f"(x, y, client, group), all of one shape ({error}): {WAYS}"
        ) from None
    found = _of_arrays(x, *names)
    classes = getattr(data, "classes", None)
    if isinstance(classes, list | tuple) and len(classes) == len(found.classes):
        return replace(found, classes=tuple(map(str, classes)))
    return found


def _array(values: Any, what: str) -> Array:
    try:
        found = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} is a {type(values).__name__} and no array ({error})") from None
    if found.dtype == object and all(isinstance(value, str) for value in found.flat):
        return found.astype(str)  # as columns of frames are
    return found
