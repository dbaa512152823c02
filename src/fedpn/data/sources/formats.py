"""The publishers' own file formats -> arrays, without pickles."""

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources import npz
from fedpn.data.sources.guard import plain_file, size

UNPACKED = 1 << 30  # bytes of one file; the publishers' have a tenth of it
Arrays = dict[str, Array]  # train_images, train_labels, test_images …
Reader = Callable[..., Arrays]  # a publisher's files, in its order -> arrays


def idx(*paths: Path) -> Arrays:
    """MNIST's format, compressed: images and labels of the training rows, then of the test rows."""
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {name: read_idx(path) for name, path in zip(names, paths, strict=True)}


def read_idx(path: Path) -> Array:
    """Two zeros, the type (8 is bytes), the number of axes, their lengths, the bytes."""
    plain_file(path)
    try:
        with gzip.open(path) as file:
            content = file.read(UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole .gz file ({error}); fetch it again") from error
    if len(content) > UNPACKED:
        raise UserError(f"{path} unpacks to more than {size(UNPACKED)}; fetch it again")
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\x00\x00\x08" or axes == 0 or len(content) < 4 + 4 * axes:
        raise UserError(f"{path} is not an idx file of bytes; fetch it again")
    shape = np.frombuffer(content, ">i4", count=axes, offset=4)
    start = 4 + 4 * len(shape)
    if len(content) - start != int(np.prod(shape)):
        raise UserError(
            f"{path} holds {len(content) - start} bytes where its head promises "
            f"{int(np.prod(shape))}; fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def cifar(archive: Path) -> Arrays:
    """CIFAR10's binary archive: rows of one label and 3 × 32 × 32 bytes."""
    plain_file(archive)
    training = [f"data_batch_{i}.bin" for i in range(1, 6)]
    try:
        with tarfile.open(archive, "r:gz") as tar:
            batches = {Path(m.name).name: _member(tar, m) for m in tar if _is_batch(m)}
        rows = {
            "train": np.concatenate([batches[name] for name in training]),
            "test": batches["test_batch.bin"],
        }
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError, ValueError) as error:
        raise UserError(
            f"{archive} is not the binary archive of CIFAR10 ({error}); fetch it again"
        ) from error
    labels = {f"{part}_labels": rows[part][:, 0] for part in rows}
    images = {
        f"{part}_images": rows[part][:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        for part in rows
    }
    return images | labels


def _is_batch(member: tarfile.TarInfo) -> bool:
    return member.isfile() and member.name.endswith(".bin") and member.size <= UNPACKED


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Array:
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    return np.frombuffer(content.read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)


def svhn(train: Path, test: Path) -> Arrays:
    """SVHN's MATLAB files: images [32, 32, 3, N], and labels of which 10 means the digit 0."""
    from scipy.io import loadmat

    arrays: Arrays = {}
    for part, path in (("train", train), ("test", test)):
        plain_file(path)
        try:
            content = loadmat(path, variable_names=("X", "y"))
            images, labels = content["X"], content["y"]
        # The reader of damaged files fails in many ways, and each means the same to the user.
        except Exception as error:
            raise UserError(
                f"{path} is not a MATLAB file of SVHN ({error}); fetch it again"
            ) from error
        arrays[f"{part}_images"] = images.transpose(3, 0, 1, 2)
        arrays[f"{part}_labels"] = (labels.ravel() % 10).astype(np.uint8)
    return arrays


def medmnist(archive: Path) -> Arrays:
    """MedMNIST's archive is of our form but for its labels, which are [N, 1]."""
    with npz.opened(archive) as file:
        return {
            name: file[name].ravel() if name.endswith("labels") else file[name]
            for name in file.heads
        }
