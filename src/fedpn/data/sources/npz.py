"""NumPy archives: written whole or not at all, read without pickles."""

import math
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources.guard import fits, plain_file, reason, size

ARRAYS = 1000  # in one archive
RATIO = 200  # of the bytes unpacked to those held; images of one set have 1 to 20
HARMLESS = 256 << 20  # bytes of which no ratio is too large
VERSIONS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


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


class Archive:
    """An open archive whose directory and heads hold what they promise; arrays are read one by one.

    Whatever is read fits into memory, as the sizes that the directory tells were checked.
    """

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path = path
        with zipfile.ZipFile(stream) as file:
            _refuse_bombs(path, file)
            self.heads = {
                info.filename.removesuffix(".npy"): self._head(file, info)
                for info in file.infolist()
                if info.filename.endswith(".npy")
            }
        self.file = NpzFile(stream, allow_pickle=False)

    def __getitem__(self, name: str) -> Array:
        with taught(self.path):
            return np.asarray(self.file[name])

    def parts(self, name: str, rows: int) -> Iterator[Array]:
        """So many rows of an array at a time, so that it need not fit into memory."""
        shape, dtype = self.heads[name]
        size = math.prod(shape[1:]) * dtype.itemsize
        archive = self.file.zip
        assert archive is not None
        with taught(self.path), archive.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            columns_first = VERSIONS[version](member)[1]
            if columns_first or not size:
                yield self[name]
                return
            for first in range(0, shape[0], rows):
                count = min(rows, shape[0] - first)
                content = member.read(count * size)
                yield np.frombuffer(content, dtype).reshape(count, *shape[1:])

    def _head(self, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
        """Reads shape and type, and holds them against the bytes that there are."""
        name = info.filename.removesuffix(".npy")
        with file.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version not in VERSIONS:
                raise ValueError(f"{name!r} has the version {version}")
            shape, _, dtype = VERSIONS[version](member)
            start = member.tell()
        if dtype.hasobject:
            raise UserError(
                f"{name!r} of {self.path} holds Python objects, which only a pickle can store and "
                "which are never read; save numbers, or names by np.array(names, dtype=str)"
            )
        promised = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or promised != info.file_size - start:
            raise ValueError(
                f"{name!r} promises the shape {shape} of {dtype} in {info.file_size - start} bytes"
            )
        return Header(shape, dtype)


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Opens an archive once its directory shows that nothing in it is out of measure."""
    plain_file(path)
    with ExitStack() as stack:
        with taught(path):
            content = Archive(path, stack.enter_context(path.open("rb")))
        stack.callback(content.file.close)
        yield content


def headers(path: Path) -> dict[str, Header]:
    """Reads shapes and types without the values."""
    with opened(path) as content:
        return content.heads


def _refuse_bombs(path: Path, file: zipfile.ZipFile) -> None:
    members, held = file.infolist(), path.stat().st_size
    if len(members) > ARRAYS:
        raise UserError(
            f"{path} holds {len(members)} arrays and at most {ARRAYS} are read; "
            "save images and labels alone"
        )
    claimed = sum(member.file_size for member in members)
    fits(claimed, f"what {path} holds", "take fewer rows, or smaller ones")
    if claimed > HARMLESS and claimed > RATIO * held:
        raise UserError(
            f"{path} has {size(held)} and claims to unpack to {size(claimed)}, more than "
            f"{RATIO} times as much; if you trust it, save it again by np.savez"
        )


@contextmanager
def taught(path: Path) -> Iterator[None]:
    """Turns what the readers of damaged files raise, which is of many kinds, into a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy muses about old heads of whole arrays
            yield
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(f"{path} does not fit into memory; take fewer rows of it") from error
    except Exception as error:
        raise UserError(
            f"{path} is not a whole NumPy archive ({reason(error)}); fetch or save it again"
        ) from error
