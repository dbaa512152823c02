"""The publishers' own file formats -> arrays, without pickles."""

import gzip
import io
import math
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources import matlab, npz
from fedpn.data.sources.guard import plain_file, reason, size

UNPACKED = 1 << 30  # bytes of one file; the publishers' have a tenth of it
AXES = 4  # of an idx file; the publishers' have 1 or 3
Arrays = dict[str, Array]  # train_images, train_labels, test_images …
Reader = Callable[..., Arrays]  # a publisher's files, in its order -> arrays


def idx(*paths: Path) -> Arrays:
    """MNIST's format, compressed: images and labels of the training rows, then of the test rows."""
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {name: read_idx(path) for name, path in zip(names, paths, strict=True)}


def read_idx(path: Path) -> Array:
    """An idx file of bytes, compressed."""
    plain_file(path)
    with path.open("rb") as file:
        return _idx(_unpacked(file, f"{path}"), f"{path}")


def _idx(content: bytes, what: str) -> Array:
    """Two zeros, the type (8 is bytes), the number of axes, their lengths, the bytes."""
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\x00\x00\x08" or not 0 < axes <= AXES or len(content) < 4 + 4 * axes:
        raise UserError(f"{what} is not an idx file of bytes; fetch it again")
    shape = tuple(np.frombuffer(content, ">u4", count=axes, offset=4).tolist())
    start, promised = 4 + 4 * axes, math.prod(shape)
    if len(content) - start != promised or not promised:
        raise UserError(
            f"{what} holds {len(content) - start} bytes where its head promises {promised}; "
            "fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _unpacked(file: IO[bytes], what: str) -> bytes:
    """What a .gz file holds, if it is of some measure."""
    try:
        with gzip.open(file) as packed:
            content = packed.read(UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{what} is not a whole .gz file ({reason(error)}); fetch it again"
        ) from error
    if len(content) > UNPACKED:
        raise UserError(f"{what} unpacks to more than {size(UNPACKED)}; fetch it again")
    return content


def emnist(archive: Path) -> Arrays:
    """EMNIST's archive of all its splits, of which the balanced one is read.

    Images lie on their sides, as MATLAB has them; a mapping tells the characters of the classes.
    """
    plain_file(archive)
    begin = "gzip/emnist-balanced"
    try:
        with zipfile.ZipFile(archive) as pack:
            arrays = {
                f"{part}_{kind}": _packed_idx(pack, f"{begin}-{part}-{kind}-idx{axes}-ubyte.gz")
                for part in ("train", "test")
                for kind, axes in (("images", 3), ("labels", 1))
            }
            lines = _limited(pack, f"{begin}-mapping.txt").split(b"\n")
        pairs = sorted(tuple(map(int, line.split())) for line in lines if line.strip())
        classes = np.array([chr(letter) for _, letter in pairs])
        for part in ("train", "test"):
            arrays[f"{part}_images"] = arrays[f"{part}_images"].transpose(0, 2, 1)
    except UserError as error:
        raise UserError(f"of {archive}, {error}") from error
    except Exception as error:  # readers of damaged archives fail in many ways
        raise UserError(
            f"{archive} is not the archive of EMNIST ({reason(error)}); fetch it again"
        ) from error
    return arrays | {"classes": classes}


def _packed_idx(pack: zipfile.ZipFile, name: str) -> Array:
    return _idx(_unpacked(io.BytesIO(_limited(pack, name)), name), name)


def _limited(pack: zipfile.ZipFile, name: str) -> bytes:
    """A file of an archive, if it is of some measure."""
    with pack.open(name) as file:
        content = file.read(UNPACKED + 1)
    if len(content) > UNPACKED:
        raise ValueError(f"{name} unpacks to more than {size(UNPACKED)}")
    return content


def cifar(archive: Path) -> Arrays:
    """CIFAR10's binary archive: rows of one label and 3 × 32 × 32 bytes."""
    training = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    return _cifar(archive, "CIFAR10", {"train": training, "test": ("test_batch.bin",)}, labels=1)


def cifar100(archive: Path) -> Arrays:
    """CIFAR100's: rows of a coarse label, a fine one, which counts, and 3 × 32 × 32 bytes."""
    return _cifar(archive, "CIFAR100", {"train": ("train.bin",), "test": ("test.bin",)}, labels=2)


def _cifar(archive: Path, name: str, parts: dict[str, tuple[str, ...]], labels: int) -> Arrays:
    plain_file(archive)
    with archive.open("rb") as file:
        content = io.BytesIO(_unpacked(file, f"{archive}"))
    try:
        with tarfile.open(fileobj=content, mode="r:") as tar:
            files = {Path(m.name).name: _member(tar, m, labels) for m in tar if _is_batch(m)}
        rows = {part: np.concatenate([files[f] for f in parts[part]]) for part in parts}
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError) as error:
        raise UserError(
            f"{archive} is not the binary archive of {name} ({reason(error)}); fetch it again"
        ) from error
    images = {
        f"{part}_images": rows[part][:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        for part in rows
    }
    return images | {f"{part}_labels": rows[part][:, labels - 1] for part in rows}


def _is_batch(member: tarfile.TarInfo) -> bool:
    """A file that is all there: one with holes may claim any size."""
    return member.isfile() and not member.issparse() and member.name.endswith(".bin")


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo, labels: int) -> Array:
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    return np.frombuffer(content.read(), np.uint8).reshape(-1, labels + 3 * 32 * 32)


def svhn(train: Path, test: Path) -> Arrays:
    """SVHN's MATLAB files: images [32, 32, 3, N], and labels of which 10 means the digit 0."""
    arrays: Arrays = {}
    for part, path in (("train", train), ("test", test)):
        images, labels = _read_mat(path)
        arrays[f"{part}_images"] = images.transpose(3, 0, 1, 2)
        arrays[f"{part}_labels"] = (labels.ravel() % 10).astype(np.uint8)
    return arrays


def _read_mat(path: Path) -> tuple[Array, Array]:
    """Images and labels as they stand, bytes and whole numbers."""
    plain_file(path, UNPACKED)
    try:
        found = matlab.arrays(path.read_bytes(), UNPACKED)
        images, labels = found["X"], found["y"]
        if images.dtype != np.uint8 or images.ndim != 4 or labels.dtype.kind not in "iu":
            raise ValueError(f"X is {images.dtype} of {images.ndim} axes, y is {labels.dtype}")
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise UserError(
            f"{path} is not a MATLAB file of SVHN ({reason(error)}); fetch it again"
        ) from error
    return images, labels


def medmnist(archive: Path) -> Arrays:
    """MedMNIST's archive is of our form but for its labels, which are [N, 1]."""
    with npz.opened(archive) as file:
        return {
            name: file[name].ravel() if name.endswith("labels") else file[name]
            for name in file.heads
        }
