"""Archives are written whole or not at all, and never as pickles."""

import numpy as np
import pytest

from fedpn.data.sources.npz import headers, write


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "some.npz"
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(2, 0, 1)
    write(path, {"images": images, "names": np.array(["a", "bc"])})
    assert headers(path) == {"images": ((4, 2, 3), np.uint8), "names": ((2,), np.dtype("<U2"))}
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["images"], images)


def test_a_failure_leaves_nothing_behind(tmp_path):
    path = tmp_path / "some.npz"
    objects = np.array([None, "x"], dtype=object)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write(path, {"good": np.zeros(9), "bad": objects})
    assert list(tmp_path.glob("*")) == []


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "some.npz"
    write(path, {"old": np.zeros(9)})
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write(path, {"bad": np.array([None], dtype=object)})
    assert list(headers(path)) == ["old"]
