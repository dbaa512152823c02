"""A folder of images: one folder in it for each class, or for each client."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.dataset import Dataset
from fedpn.data.sources import dicom, picture
from fedpn.data.sources.guard import reason
from fedpn.data.sources.shades import COLOUR, GREY, Look

DEFAULT_SIZE = 32  # of images of mixed sizes, where the user names none
LARGEST = 256  # the longer side of images of one size, where the user names none
PARTS = {"train", "val", "valid", "validation", "test"}
CLUTTER = {"thumbs.db", "desktop.ini", "__macosx", dicom.INDEX}  # and names that begin with a dot


def load_folder(path: Path, image_size: int | None = None) -> Dataset:
    """Reads `class/picture` files, or `client/class/picture`.

    Where the outer folders are called train, test and so on, they are pooled instead.
    """
    found = sorted(_find(path), key=lambda file: file.kind)
    names = sorted({file.kind for file in found})
    if len(names) < 2:
        raise UserError(
            f"{path} holds {len(names)} folders with pictures; it needs one for each class, "
            "at least 2"
        )
    paths = [file.path for file in found]
    looks = [picture.look(path) for path in paths]
    mode, mode_remark = _one_mode(looks)
    size, size_remark = _one_size(looks, image_size)
    outer = sorted({file.outer for file in found})
    pooled = all(name.lower() in PARTS for name in outer)
    remarks = [f"the folders {', '.join(outer)} were pooled; rows are dealt afresh"] * pooled
    pictures = picture.read(paths, mode, size)
    remarks += [r for r in (mode_remark, size_remark, *pictures.remarks) if r]
    dataset = Dataset(
        path.resolve().name,
        pictures.images,
        np.array([names.index(file.kind) for file in found]),
        tuple(names),
        remarks=tuple(remarks),
    )
    if pooled or outer == [""]:
        return dataset
    owner = np.array([outer.index(file.outer) for file in found])
    return replace(dataset, client=owner, clients=tuple(outer))


class File(NamedTuple):
    """A picture: the names of its outer folder, if there is one, and of its class."""

    outer: str
    kind: str
    path: Path


def _find(path: Path) -> list[File]:
    inside = entries(path)
    if not inside or not all(_holds_folders(entry) for entry in inside):
        return [File("", kind, file) for kind, files in _classes(path).items() for file in files]
    return [
        File(composed(outer.name), kind, file)
        for outer in inside
        for kind, files in _classes(outer).items()
        for file in files
    ]


def _classes(path: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for entry in entries(path):
        if not entry.is_dir():
            raise UserError(
                f"{entry} lies beside the folders of the classes; move it into one or take it away"
            )
        if not entry.name.isprintable():
            raise UserError(f"the folder {str(entry)!r} has a name that is no text; rename it")
        name, inside = composed(entry.name), entries(entry)
        files[name] = [*files.get(name, []), *inside]
        if not inside:
            raise UserError(f"the folder {entry} is empty; put pictures of that class into it")
        deeper = next((file for file in inside if file.is_dir()), None)
        if deeper:
            raise UserError(
                f"{deeper} is a folder where pictures were expected; give each class one folder "
                f"in {path}"
            )
    return files


def entries(path: Path) -> list[Path]:
    """What lies in a folder, in order and without clutter."""
    try:
        found = sorted(path.iterdir())
    except OSError as error:
        raise UserError(f"the folder {path} cannot be read ({reason(error)})") from error
    return [
        entry
        for entry in found
        if not entry.name.startswith(".") and entry.name.lower() not in CLUTTER
    ]


def _holds_folders(path: Path) -> bool:
    return path.is_dir() and any(entry.is_dir() for entry in entries(path))


def _one_mode(looks: list[Look]) -> tuple[str, str]:
    modes = Counter(look.mode for look in looks)
    if len(modes) == 1:
        return looks[0].mode, ""
    grey = modes[GREY]
    return COLOUR, f"{grey} grey images of {len(looks)} were brought to colour"


def _one_size(looks: list[Look], wanted: int | None) -> tuple[tuple[int, int], str]:
    sizes = sorted({(look.width, look.height) for look in looks})
    size = (wanted, wanted) if wanted else _usual_size(sizes)
    if sizes == [size]:
        return size, ""
    first, last = (f"{width}×{height}" for width, height in (sizes[0], sizes[-1]))
    spread = f"of {len(sizes)} sizes, {first} to {last}," if len(sizes) > 1 else f"of {first}"
    way = "" if wanted else "; --set data.image_size=… names another size"
    return size, f"{len(looks)} images {spread} were resized to {size[0]}×{size[1]}{way}"


def _usual_size(sizes: list[tuple[int, int]]) -> tuple[int, int]:
    """Images of one size keep it, or their proportions if they are large.

    >>> _usual_size([(28, 20)]), _usual_size([(3000, 2000)]), _usual_size([(28, 20), (9, 9)])
    ((28, 20), (256, 171), (32, 32))
    """
    if len(sizes) > 1:
        return DEFAULT_SIZE, DEFAULT_SIZE
    width, height = sizes[0]
    scale = min(1, LARGEST / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))
