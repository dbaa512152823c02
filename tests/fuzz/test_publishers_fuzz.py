"""The publishers' own formats: read, or refused in a sentence."""

import io
import json
import struct
import tarfile
import zipfile
import zlib

import numpy as np
from absurd import changed, json_values
from files import CIFAR, IMAGES, idx, mat, packed, tar
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mutate import mutated
from trial import fuzz, reads

from fedpn.data.sources import formats
from fedpn.data.sources.own import load_own

IDX, TAR = idx(IMAGES), tar()
TARS = [TAR, tar(tarfile.PAX_FORMAT, names=["é" * 120 + ".bin"], rows=1)]
HOUSES = {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.array([[1], [10], [3], [4]])}
MATS = [mat(**HOUSES), mat(compress=True, **HOUSES)]
OLD = mat(version="4", X=np.zeros((4, 4)), y=np.ones((4, 1)))


def heads(*axes):
    return b"\0\0\x08" + bytes([len(axes)]) + np.array(axes, ">i4").tobytes()


@fuzz(examples=200)
@given(content=st.one_of(mutated(packed(IDX)), mutated(IDX).map(packed)))
@example(content=packed(heads(-1, -3) + b"abc"))  # a product that fits
@example(content=packed(heads(2**16, 2**16, 2**16, 2**16)))  # one that 64 bits do not hold
@example(content=packed(heads(*[1] * 70) + b"a"))  # more axes than NumPy has
def test_idx(content, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    reads(lambda: formats.read_idx(path), path.name)


def holes(size):
    """An archive whose files are said to have very many bytes, all of them holes."""
    content = b""
    for name in CIFAR:
        head = bytearray(tar(tarfile.GNU_FORMAT, names=[name], rows=0)[:512])
        head[156:157] = b"S"
        head[483:495] = f"{size:011o}\0".encode()
        head[148:156] = b" " * 8
        head[148:156] = f"{sum(head):06o}\0 ".encode()
        content += bytes(head)
    return content + bytes(1024)


@fuzz(examples=80)
@given(content=st.one_of(mutated(packed(TAR)), *(mutated(content).map(packed) for content in TARS)))
@example(content=packed(tar(more=1)))  # no whole rows
@example(content=packed(tar(rows=0)))
@example(content=packed(tar(names=CIFAR[1:])))
@example(content=packed(holes(3073 * 10**5)))
def test_the_archive_of_cifar(content, tmp_path):
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(content)
    reads(lambda: formats.cifar(path), path.name)


FINE = tar(names=["train.bin", "test.bin"], rows=0, more=2 * 3074)


@fuzz(examples=80)
@given(content=st.one_of(mutated(packed(FINE)), mutated(FINE).map(packed)))
@example(content=packed(tar(names=["train.bin", "test.bin"])))  # no whole rows
def test_the_archive_of_cifar100(content, tmp_path):
    path = tmp_path / "cifar.tar.gz"
    path.write_bytes(content)
    reads(lambda: formats.cifar100(path), path.name)


def letters(images=IDX, mapping=b"0 48\n1 65\n", method=zipfile.ZIP_STORED):
    """EMNIST's archive, of one split."""
    file, begin = io.BytesIO(), "gzip/emnist-balanced"
    with zipfile.ZipFile(file, "w", method) as pack:
        for part in ("train", "test"):
            files = {"images-idx3": images, "labels-idx1": idx(IMAGES[:, 0, 0])}
            for name, content in files.items():
                place = zipfile.ZipInfo(f"{begin}-{part}-{name}-ubyte.gz")
                pack.writestr(place, packed(content))
        pack.writestr(zipfile.ZipInfo(f"{begin}-mapping.txt"), mapping)
    return file.getvalue()


@fuzz(examples=150)
@given(
    content=st.one_of(
        mutated(letters()),
        mutated(IDX).map(letters),
        st.binary(max_size=30).map(lambda mapping: letters(mapping=mapping)),
    )
)
@example(content=letters(images=idx(IMAGES[0])))
@example(content=letters(mapping=b"0 -5\n"))
@example(content=letters(mapping=b"0 48 7\n"))
@example(content=letters(mapping=b""))
def test_the_archive_of_emnist(content, tmp_path):
    path = tmp_path / "gzip.zip"
    path.write_bytes(content)
    reads(lambda: formats.emnist(path), path.name)


WRITERS = {"users": ["a"], "user_data": {"a": {"x": [[0.5] * 784, [1] * 784], "y": [0, 61]}}}


@fuzz(examples=150)
@given(
    content=st.one_of(
        mutated(json.dumps(WRITERS).encode()),
        changed(WRITERS["user_data"]["a"] | {"x": [[0.5]]}, json_values()).map(
            lambda rows: json.dumps({"user_data": {"a": rows}}).encode()
        ),
        changed({"user_data": {"a": {"x": [], "y": []}}}, json_values()).map(
            lambda tree: json.dumps(tree).encode()
        ),
    )
)
@example(content=json.dumps({"user_data": {"a": {"x": [[10**400] * 784], "y": [1]}}}).encode())
@example(content=json.dumps({"user_data": {"a": {"x": [[1e39] * 784], "y": [1]}}}).encode())
@example(content=b"[" * 10**5)
def test_femnist_as_leaf_makes_it(content, tmp_path):
    path = tmp_path / "all_data_0.json"
    path.write_bytes(content)
    reads(lambda: load_own(path), path.name)


def compressed(element):
    """A MATLAB file whose one element is whole, whatever be in it."""
    body = zlib.compress(element)
    return MATS[0][:128] + struct.pack("<II", 15, len(body)) + body


@fuzz(examples=200)
@given(content=st.one_of(*map(mutated, [*MATS, OLD]), mutated(MATS[0][128:]).map(compressed)))
def test_the_files_of_svhn(content, tmp_path):
    path = tmp_path / "train.mat"
    path.write_bytes(content)
    reads(lambda: formats.svhn(path, path), path.name)


@fuzz(examples=80)
@given(
    images=arrays(
        st.sampled_from(["u1", "f8", "c16", "i8", "U2"]),
        st.sampled_from([(1,), (2, 2), (2, 2, 3, 2), (2, 2, 3, 1)]),
    ),
    labels=arrays(
        st.sampled_from(["u1", "f8", "c16", "i8", "U2"]), st.sampled_from([(1,), (2, 1), (2, 2)])
    ),
)
@example(images=HOUSES["X"], labels={"a": 1})
@example(images=HOUSES["X"], labels=np.array([[np.nan]]))
@example(images=[[1, "a"], {}], labels=HOUSES["y"])
def test_files_of_svhn_that_hold_something_else(images, labels, tmp_path):
    path = tmp_path / "train.mat"
    path.write_bytes(mat(X=images, y=labels))
    reads(lambda: formats.svhn(path, path), path.name)


def test_whole_files_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(packed(IDX))
    assert reads(lambda: formats.read_idx(path))
    path.write_bytes(packed(TAR))
    assert reads(lambda: formats.cifar(path))
    path.write_bytes(packed(FINE))
    assert reads(lambda: formats.cifar100(path))
    path.write_bytes(letters())
    assert reads(lambda: formats.emnist(path))
    for content in MATS:
        path.write_bytes(content)
        assert reads(lambda: formats.svhn(path, path))
    path = tmp_path / "all_data_0.json"
    path.write_text(json.dumps(WRITERS), encoding="utf-8")
    assert reads(lambda: load_own(path))
