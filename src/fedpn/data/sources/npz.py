"""NumPy archives: written whole or not at all, read without pickles."""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array


class Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def write(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes under a temporary name and renames, so that a file is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w") as pack:
                for key, array in arrays.items():
                    with pack.open(f"{key}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def headers(path: Path) -> dict[str, Header]:
    """Reads shapes and types without the values."""
    with taught(path), zipfile.ZipFile(path) as file:
        names = [name for name in file.namelist() if name.endswith(".npy")]
        found = {name.removesuffix(".npy"): _header(file, name) for name in names}
    for name, header in found.items():
        if header.dtype.hasobject:
            raise UserError(
                f"{name!r} of {path} holds Python objects, which only a pickle can store and which "
                "are never read; save numbers, or names by np.array(names, dtype=str)"
            )
    return found


def _header(file: zipfile.ZipFile, name: str) -> Header:
    versions = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with file.open(name) as member:
        shape, _, dtype = versions[np.lib.format.read_magic(member)](member)
    return Header(shape, dtype)


@contextmanager
def taught(path: Path) -> Iterator[None]:
    """Turns what the readers of damaged files raise into a sentence."""
    try:
        yield
    except UserError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is not a whole NumPy archive ({error}); fetch or save it again"
        ) from error
