"""Files that are not what they should be, in each publisher's format."""

import gzip
import io

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from fedpn.core.errors import UserError
from fedpn.data.sources import formats, matlab

IDX = bytes([0, 0, 8, 1, 0, 0, 0, 3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not compressed", "not a whole .gz file"),
        (gzip.compress(IDX + b"abc")[:-6], "not a whole .gz file"),
        (gzip.compress(b"\x00\x00\x0d\x01" + IDX[4:] + b"abc"), "not an idx file of bytes"),
        (gzip.compress(IDX + b"ab"), "holds 2 bytes where its head promises 3"),
    ],
    ids=["plain", "cut", "kind", "short"],  # the bytes of an archive tell the time
)
def test_a_bad_idx_file_is_named(content, message, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        formats.read_idx(path)


def test_idx_by_hand(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])))
    np.testing.assert_array_equal(formats.read_idx(path), [[1, 2, 3], [4, 5, 6]])


READERS = [formats.cifar, formats.cifar100, formats.emnist, lambda path: formats.svhn(path, path)]


@pytest.mark.parametrize("reader", READERS)
def test_a_bad_archive_is_named(reader, tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(UserError, match=r"archive is not .* fetch it again"):
        reader(path)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i4", "f4", "f8", "i8", "u8"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 5), (4, 3, 2, 5)])
def test_matlab_files_are_read_as_scipy_does(compress, kind, shape):
    values = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    file = io.BytesIO()
    others = {"words": "skipped", "cells": {"a": 1}, "turns": values * 1j}
    savemat(file, {"X": values, **others, "y": values[:1]}, do_compression=compress)
    found = matlab.arrays(file.getvalue(), 1 << 20)
    assert sorted(found) == ["X", "y"]
    for name, expected in loadmat(file, variable_names=found).items():
        if name in found:
            np.testing.assert_array_equal(found[name], expected)
