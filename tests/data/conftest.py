"""Tests never touch the user's cache, and share tiny copies of every publisher's format."""

import gzip
import hashlib
import io
import tarfile
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


def _tiny_cifar(name):
    images, labels = _pixels(np.random.default_rng(1), 3, 32, 32)
    rows = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for file, part in zip(names, np.split(rows, [4, 8, 12, 16, 20]), strict=True):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            info.size = part.nbytes
            tar.addfile(info, io.BytesIO(part.tobytes()))
    return Tiny(name, {"cifar-10-binary.tar.gz": content.getvalue()}, images, labels)


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
