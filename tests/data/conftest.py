"""Tests never touch the user's cache, and share tiny copies of every publisher's format."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.io import savemat

from fedpn.data.sources.publishers import PUBLISHERS

TRAIN, TEST = 20, 8


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    place = tmp_path / "cache"
    monkeypatch.setenv("FEDPN_CACHE", str(place))
    return place


@pytest.fixture
def empty_place(tmp_path, monkeypatch):
    """A `$FEDPN_DATA` without any data."""
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv("FEDPN_DATA", str(place))
    return place


class Tiny(NamedTuple):
    """A publisher's files in small, and the arrays that they hold."""

    name: str
    files: dict[str, bytes]
    images: np.ndarray
    labels: np.ndarray


def _idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return gzip.compress(head + array.tobytes())


def _pixels(rng, *shape):
    images = rng.integers(0, 256, (TRAIN + TEST, *shape), dtype=np.uint8)
    labels = (np.arange(TRAIN + TEST) % 10).astype(np.uint8)
    return images, labels


def _tiny_idx(name):
    images, labels = _pixels(np.random.default_rng(0), 28, 28)
    parts = (images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])
    names = PUBLISHERS[name].files
    return Tiny(name, dict(zip(names, map(_idx, parts), strict=True)), images[:, None], labels)


def _tar(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, inside in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(inside)
            tar.addfile(info, io.BytesIO(inside))
    return content.getvalue()


def _tiny_cifar(name):
    images, labels = _pixels(np.random.default_rng(1), 3, 32, 32)
    rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    parts = zip(names, np.split(rows, [4, 8, 12, 16, 20]), strict=True)
    packed = _tar({f"cifar-10-batches-bin/{file}": part.tobytes() for file, part in parts})
    return Tiny(name, {"cifar-10-binary.tar.gz": packed}, images, labels)


def _tiny_cifar100(name):
    images, labels = _pixels(np.random.default_rng(4), 3, 32, 32)
    coarse = labels[::-1, None] // 2  # comes first, and does not count
    rows = np.concatenate([coarse, labels[:, None], images.reshape(len(images), -1)], axis=1)
    files = {"train.bin": rows[:TRAIN].tobytes(), "test.bin": rows[TRAIN:].tobytes()}
    files |= {"fine_label_names.txt": b"apple\n", "coarse_label_names.txt": b"fish\n"}
    packed = _tar({f"cifar-100-binary/{file}": content for file, content in files.items()})
    return Tiny(name, {"cifar-100-binary.tar.gz": packed}, images, labels)


def _tiny_emnist(name):
    images, labels = _pixels(np.random.default_rng(5), 28, 28)
    letters = [*range(48, 58), *range(65, 91), 97, 98, 100, 101, 102, 103, 104, 110, 113, 114, 116]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as pack:
        for part, rows in (("train", slice(TRAIN)), ("test", slice(TRAIN, None))):
            begin = f"gzip/emnist-balanced-{part}"
            lying = np.ascontiguousarray(images[rows].transpose(0, 2, 1))
            pack.writestr(f"{begin}-images-idx3-ubyte.gz", _idx(lying))
            pack.writestr(f"{begin}-labels-idx1-ubyte.gz", _idx(labels[rows]))
            pack.writestr(f"gzip/emnist-letters-{part}-labels-idx1-ubyte.gz", b"another split")
        mapping = "".join(f"{i} {letter}\n" for i, letter in reversed([*enumerate(letters)]))
        pack.writestr("gzip/emnist-balanced-mapping.txt", mapping)
    return Tiny(name, {"gzip.zip": content.getvalue()}, images[:, None], labels)


def _tiny_svhn(name):
    images, labels = _pixels(np.random.default_rng(2), 3, 32, 32)
    files = {}
    for file, part in (("train", slice(TRAIN)), ("test", slice(TRAIN, None))):
        content = io.BytesIO()
        tens = np.where(labels[part] == 0, 10, labels[part])[:, None]
        savemat(content, {"X": images[part].transpose(2, 3, 1, 0), "y": tens})
        files[f"{file}_32x32.mat"] = content.getvalue()
    return Tiny(name, files, images, labels)


def _tiny_medmnist(name):
    images, labels = _pixels(np.random.default_rng(3), 28, 28)
    content = io.BytesIO()
    arrays = {}
    for part, rows in (("train", slice(12)), ("val", slice(12, 20)), ("test", slice(20, None))):
        arrays |= {f"{part}_images": images[rows], f"{part}_labels": labels[rows, None]}
    np.savez(content, **arrays)
    return Tiny(name, {f"{name}.npz": content.getvalue()}, images[:, None], labels)


TINY = {
    "mnist": _tiny_idx,
    "fashionmnist": _tiny_idx,
    "cifar10": _tiny_cifar,
    "cifar100": _tiny_cifar100,
    "emnist": _tiny_emnist,
    "svhn": _tiny_svhn,
    "organcmnist": _tiny_medmnist,
}


@pytest.fixture
def tiny(monkeypatch):
    """Makes a publisher small: its files, their checksums, its row counts."""

    def make(name):
        small = TINY[name](name)
        md5s = {file: hashlib.md5(content).hexdigest() for file, content in small.files.items()}
        rows = {"train": TRAIN, "test": TEST}
        if name == "organcmnist":
            rows = {"train": 12, "val": 8, "test": TEST}
        publisher = replace(PUBLISHERS[name], files=md5s, rows=rows, packaged=())
        monkeypatch.setitem(PUBLISHERS, name, publisher)
        return small

    return make
