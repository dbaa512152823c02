"""What `fedpn data check` says of one's own data."""

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.sources.check import check


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "mine.npz", **arrays)
        return tmp_path / "mine.npz"

    return write


def test_images_without_clients(save):
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 10), dtype=np.uint8)
    path = save(images=images, labels=np.arange(200) % 3)
    assert check(path) == [
        f"{path}: 200 rows of grey images of 10×8",
        "3 classes, from 66 rows (2) to 67 (0)",
        "no client is named: the partition 'classes' deals them, evenly to at most 2",
    ]


def test_features_with_clients(save):
    features = np.random.default_rng(0).random((200, 5))
    owners = np.where(np.arange(200) < 30, "north", "south")
    path = save(x=features, y=np.arange(200) % 2, client=owners)
    assert check(path) == [
        f"{path}: 200 rows of 5 features (encoder: mlp)",
        "2 classes, 100 rows each",
        "2 clients, from 30 rows (north) to 170: the partition 'natural' keeps them",
        "less than 95 rows, too few for thresholds of their own, have north: they borrow the "
        "federation's",
    ]


def test_columns_that_are_no_features_are_told(tmp_path):
    rows = [f"{i},5,{i % 7 / 10},{('Sick', 'sick', 'well')[i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["patient,ward,pulse,label", *rows]))
    lines = check(tmp_path / "t.csv")
    table = {line.split()[0]: line for line in lines if line}
    assert table["ward"].endswith("kept, though it has one value only")
    assert table["pulse"].endswith("taken as it is")
    assert any("if that is an identifier" in line and "patient" in line for line in lines)
    assert "the classes 'Sick' and 'sick' differ in their case alone" in lines


def test_copies_and_remarks_are_told(save):
    images = np.random.default_rng(0).integers(0, 256, (200, 8, 8), dtype=np.uint8)
    images[5] = images[6] = images[7]
    lines = check(save(images=images, labels=np.arange(200) % 2), image_size=8)
    assert "2 rows are exact copies of others, and count once; else data.copies=each" in lines
    assert lines[-1].startswith("no client is named: the partition 'dirichlet'")
    resized = check(save(images=images, labels=np.arange(200) % 2), image_size=16)
    assert "200 images of 8×8 were resized to 16×16" in resized


def test_too_few_rows_are_told(save):
    lines = check(save(x=np.arange(20.0).reshape(10, 2), y=np.arange(10) % 2))
    assert lines[-1] == "too few rows for a federation: 2 clients need 190"


def test_bad_data_are_refused(save):
    with pytest.raises(UserError, match="one class only"):
        check(save(x=np.ones((4, 2)), y=np.zeros(4, int)))
