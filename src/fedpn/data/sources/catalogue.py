"""All named sets at a glance: where each is, what it holds, what one may do with it."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import channels_first
from fedpn.data.sources import archive, npz
from fedpn.data.sources.datasets import BUILT_IN, find, load, names, note_of, places
from fedpn.data.sources.download import packaged
from fedpn.data.sources.publishers import PUBLISHERS


class Entry(NamedTuple):
    """A line of the catalogue; what is not known is 0 or empty."""

    name: str
    where: str  # a path, or what to do about it
    at_hand: bool
    rows: int
    classes: int
    size: str  # of an image: width × height × channels
    licence: str
    note: str


def catalogue() -> list[Entry]:
    """Describes every named set without reading its pixels."""
    return [describe_name(name) for name in names()]


def describe_name(name: str) -> Entry:
    """Describes a set by its file, or by what its publisher says of it.

    >>> describe_name("digits").size
    '28×28×1'
    """
    if name in BUILT_IN:
        held = load(name)
        licence = "CC BY 4.0 (Alpaydin and Kaynak 1998)"
        return Entry(name, "built in", True, len(held), 10, "28×28×1", licence, held.note)
    path = find(name)
    return _of_file(name, path) if path else _of_publisher(name)


def _of_file(name: str, path: Path) -> Entry:
    publisher = PUBLISHERS.get(name)
    licence = publisher.licence if publisher else "not known: see its source"
    try:
        with npz.opened(path) as file:
            heads = file.heads
            found = archive.parts(path, heads)
            labels = [np.unique(file[part.labels]) for part in found]
    except UserError as error:  # one bad file must not hide the others
        return Entry(name, str(path), False, 0, 0, "", licence, str(error))
    rows = {part.name: part.rows for part in found}
    return Entry(
        name,
        str(path),
        True,
        sum(rows.values()),
        len(np.unique(np.concatenate(labels))),
        _size(heads[found[0].images].shape),
        licence,
        note_of(publisher, rows),
    )


def _of_publisher(name: str) -> Entry:
    publisher = PUBLISHERS[name]
    channels, height, width = publisher.image
    given = [place / name for place in places() if (place / name).is_dir()]
    files = packaged(publisher)
    if files or given:
        where = f"{files[0].parent if files else given[0]}, to be converted"
    else:
        where = f"not at hand: fedpn data get {name} ({urlsplit(publisher.url).netloc})"
    return Entry(
        name,
        where,
        False,
        sum(publisher.rows.values()),
        len(publisher.classes),
        f"{width}×{height}×{channels}",
        publisher.licence,
        publisher.leak,
    )


def _size(shape: tuple[int, ...]) -> str:
    """The size of an image, or the number of features.

    >>> _size((10, 28, 20)), _size((10, 32, 32, 3)), _size((10, 30))
    ('20×28×1', '32×32×3', '30 features')
    """
    if len(shape) not in (3, 4):
        return f"{shape[-1]} features"
    # A view of no memory, to ask the one function that knows where channels stand.
    channels, height, width = channels_first(np.broadcast_to(np.uint8(0), shape)).shape[1:]
    return f"{width}×{height}×{channels}"
