"""A folder of images: one folder in it for each class."""

from collections import Counter
from pathlib import Path

import numpy as np

from fedpn.data import picture
from fedpn.data.dataset import Dataset
from fedpn.errors import UserError

DEFAULT_SIZE = 32  # of images of mixed sizes, where the user names none
PARTS = {"train", "val", "valid", "validation", "test"}
CLUTTER = {"thumbs.db", "desktop.ini", "__macosx"}  # and names that begin with a dot


def load_folder(path: Path, image_size: int | None = None) -> Dataset:
    """Reads `class/picture` files, or `train/class/picture` and so on, which are pooled."""
    files, remarks = _find(path)
    names = sorted(files)
    if len(names) < 2:
        raise UserError(
            f"{path} holds {len(names)} folders with pictures; it needs one for each class, "
            "at least 2"
        )
    paths = [file for name in names for file in files[name]]
    looks = [picture.look(file) for file in paths]
    mode, mode_remark = _one_mode(looks)
    size, size_remark = _one_size(looks, image_size)
    remarks += [remark for remark in (mode_remark, size_remark) if remark]
    y = np.repeat(np.arange(len(names)), [len(files[name]) for name in names])
    x = picture.read(paths, mode, size)
    return Dataset(path.resolve().name, x, y, tuple(names), remarks=tuple(remarks))


def _find(path: Path) -> tuple[dict[str, list[Path]], list[str]]:
    inside = _entries(path)
    parts = [entry for entry in inside if entry.name.lower() in PARTS]
    if not parts or len(parts) < len(inside) or not all(_holds_folders(part) for part in parts):
        return _find_classes(path), []
    files: dict[str, list[Path]] = {}
    for part in parts:
        for name, found in _find_classes(part).items():
            files[name] = files.get(name, []) + found
    pooled = ", ".join(part.name for part in parts)
    return files, [f"the folders {pooled} were pooled; rows are dealt afresh"]


def _find_classes(path: Path) -> dict[str, list[Path]]:
    files = {}
    for entry in _entries(path):
        if not entry.is_dir():
            raise UserError(
                f"{entry} lies beside the folders of the classes; move it into one or take it away"
            )
        files[entry.name] = _entries(entry)
        if not files[entry.name]:
            raise UserError(f"the folder {entry} is empty; put pictures of that class into it")
        deeper = next((file for file in files[entry.name] if file.is_dir()), None)
        if deeper:
            raise UserError(
                f"{deeper} is a folder where pictures were expected; give each class one folder "
                f"in {path}"
            )
    return files


def _entries(path: Path) -> list[Path]:
    return sorted(
        entry
        for entry in path.iterdir()
        if not entry.name.startswith(".") and entry.name.lower() not in CLUTTER
    )


def _holds_folders(path: Path) -> bool:
    return path.is_dir() and any(entry.is_dir() for entry in _entries(path))


def _one_mode(looks: list[picture.Look]) -> tuple[str, str]:
    modes = Counter(look.mode for look in looks)
    if len(modes) == 1:
        return looks[0].mode, ""
    grey = modes[picture.GREY]
    return picture.COLOUR, f"{grey} grey images of {len(looks)} were brought to colour"


def _one_size(looks: list[picture.Look], wanted: int | None) -> tuple[tuple[int, int], str]:
    sizes = sorted({(look.width, look.height) for look in looks})
    if wanted is None and len(sizes) == 1:
        return sizes[0], ""
    side = wanted or DEFAULT_SIZE
    if sizes == [(side, side)]:
        return (side, side), ""
    first, last = (f"{width}×{height}" for width, height in (sizes[0], sizes[-1]))
    spread = f"of {len(sizes)} sizes, {first} to {last}," if len(sizes) > 1 else f"of {first}"
    way = "" if wanted else "; --set data.image_size=… names another size"
    return (side, side), f"{len(looks)} images {spread} were resized to {side}×{side}{way}"
