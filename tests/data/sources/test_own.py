"""One's own archives, and how a spec is told to be a name or a path."""

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.sources.own import load_own, open_dataset

IMAGES = np.arange(6 * 8 * 10, dtype=np.uint8).reshape(6, 8, 10)
LABELS = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)
        return path

    return write


def test_images_and_labels(save):
    dataset = load_own(save(images=IMAGES, labels=LABELS))
    assert (dataset.name, dataset.classes, dataset.client) == ("mine", ("0", "1", "2"), None)
    np.testing.assert_array_equal(dataset.x[:, 0], IMAGES)
    assert dataset.y.dtype == np.int64


def test_names_of_classes_and_clients(save):
    names = np.array(["cat", "ant", "bee", "cat", "ant", "bee"])
    owners = np.array([10, 9, 10, 9, 10, 9])
    dataset = load_own(save(x=IMAGES, y=names, client=owners))
    assert dataset.classes == ("ant", "bee", "cat")
    assert dataset.y.tolist() == [2, 0, 1, 2, 0, 1]
    assert dataset.clients == ("9", "10")
    assert dataset.client.tolist() == [1, 0, 1, 0, 1, 0]


def test_class_names_beside_numbers(save):
    dataset = load_own(save(images=IMAGES, labels=LABELS, classes=np.array(["a", "b", "c"])))
    assert dataset.classes == ("a", "b", "c")


def test_ready_made_parts_are_pooled_and_it_is_said(save):
    dataset = load_own(
        save(
            train_images=IMAGES[:4],
            train_labels=LABELS[:4],
            test_images=IMAGES[4:],
            test_labels=LABELS[4:],
            train_client=np.array([0, 0, 1, 1]),
            test_client=np.array([0, 1]),
        )
    )
    np.testing.assert_array_equal(dataset.x[:, 0], IMAGES)
    assert dataset.client.tolist() == [0, 0, 1, 1, 0, 1]
    assert dataset.remarks == ("the parts train, test were pooled; rows are dealt afresh",)


@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (6, 8, 8, 3)])
def test_channels_may_come_first_or_last(save, shape):
    assert load_own(save(images=np.zeros(shape, np.uint8), labels=LABELS)).shape == (3, 8, 8)


def test_floats_from_0_to_1_become_bytes_and_it_is_said(save):
    dataset = load_own(save(images=IMAGES / 255, labels=LABELS))
    np.testing.assert_array_equal(dataset.x[:, 0], IMAGES)
    assert "0 to 1 became bytes" in dataset.remarks[0]


def test_whole_numbers_and_truths_become_bytes(save):
    wide = load_own(save(images=IMAGES.astype(np.int64), labels=LABELS))
    np.testing.assert_array_equal(wide.x[:, 0], IMAGES)
    truths = load_own(save(images=IMAGES > 100, labels=LABELS))
    np.testing.assert_array_equal(truths.x[:, 0], (IMAGES > 100) * 255)


def test_features(save):
    dataset = load_own(save(x=np.arange(12.0).reshape(6, 2), y=LABELS))
    assert dataset.shape == (2,)
    assert dataset.x.dtype == np.float32


def test_images_are_resized_and_it_is_said(save):
    dataset = load_own(save(images=IMAGES, labels=LABELS), image_size=16)
    assert dataset.shape == (1, 16, 16)
    assert dataset.remarks == ("6 images of 10×8 were resized to 16×16",)


NAN = np.where(np.arange(12).reshape(6, 2) == 5, np.nan, 1.0)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pixels": IMAGES}, "holds pixels; name its arrays 'images' and 'labels'"),
        ({"images": IMAGES}, "holds no 'labels'"),
        ({"images": IMAGES, "labels": LABELS[:5]}, r"'labels' .* shape \(5,\) beside 6 rows"),
        ({"images": IMAGES, "labels": np.eye(6)}, "it needs one value a row"),
        ({"images": IMAGES, "labels": LABELS * 0}, "names one class only, '0'"),
        ({"images": IMAGES, "labels": LABELS * 2}, "up to class 4 but no row has class 1"),
        ({"images": IMAGES, "labels": LABELS - 1}, r"row 0 of 'labels' of .* is -1"),
        ({"images": IMAGES, "labels": [0, 1, np.nan] * 2}, r"row 2 of 'labels' of .* is nan"),
        ({"images": IMAGES, "labels": [0, 1, 0.5] * 2}, r"row 2 of 'labels' of .* is 0\.5"),
        ({"images": IMAGES, "labels": LABELS * 1j}, "has the type complex128"),
        ({"images": IMAGES, "labels": ["a", "", "b"] * 2}, r"row 1 of 'labels' of .* is empty"),
        ({"x": NAN, "y": LABELS}, r"row 2 of x of .* missing or infinite"),
        ({"x": NAN * np.inf, "y": LABELS}, r"row 0 of x of .* missing or infinite"),
        ({"x": np.full((6, 2), 1e60), "y": LABELS}, "missing or infinite"),
        ({"images": IMAGES * 2.5, "labels": LABELS}, r"values from 0 to 637\.5; pixels are bytes"),
        ({"images": IMAGES - 1.0, "labels": LABELS}, "values from -1 to 254; pixels are bytes"),
        ({"images": IMAGES.astype("U3"), "labels": LABELS}, "images are bytes"),
        ({"images": LABELS, "labels": LABELS}, r"images .* has the shape \(6,\)"),
        ({"images": np.zeros((6, 9, 9, 9), np.uint8), "labels": LABELS}, "1 to 4 channels"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "'images' of .* is empty"),
        ({"images": IMAGES, "x": IMAGES, "labels": LABELS}, "keep either one whole set"),
        (
            {"images": IMAGES, "labels": LABELS, "train_images": IMAGES, "train_labels": LABELS},
            "holds images and train_images; keep either one whole set or its parts",
        ),
        (
            {
                "train_images": IMAGES,
                "train_labels": LABELS,
                "test_images": IMAGES[:, :5],
                "test_labels": LABELS,
            },
            r"'test_images' of .* \(1, 5, 10\) .* \(1, 8, 10\); bring them to one",
        ),
        (
            {
                "train_images": IMAGES,
                "train_labels": LABELS,
                "test_images": IMAGES,
                "test_labels": LABELS - 1,
            },
            "row 0 of 'test_labels'",
        ),
        (
            {
                "train_images": IMAGES,
                "train_labels": LABELS,
                "train_client": LABELS,
                "test_images": IMAGES,
                "test_labels": LABELS,
            },
            "holds 'train_client' but not one for every part",
        ),
        ({"images": IMAGES, "labels": LABELS, "client": LABELS / 3}, "'client' of .* float64"),
        ({"images": IMAGES, "labels": LABELS, "classes": ["a", "b"]}, "needs 3 different names"),
        (
            {"images": IMAGES, "labels": np.array(list("abcabc"), dtype=object)},
            "'labels' of .* holds Python objects",
        ),
    ],
)
def test_a_bad_archive_is_refused_in_words(save, arrays, message):
    path = save(**arrays)
    with pytest.raises(UserError, match=message) as caught:
        load_own(path)
    assert str(path) in str(caught.value)


def test_what_is_no_dataset_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no file or folder"):
        load_own(tmp_path / "nowhere.npz")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(UserError, match=r"empty\.csv is empty"):
        load_own(tmp_path / "empty.csv")
    (tmp_path / "words.docx").write_text("words")
    with pytest.raises(UserError, match=r"ends with '\.docx'; own data are"):
        load_own(tmp_path / "words.docx")
    (tmp_path / "fake.npz").write_text("words")
    with pytest.raises(UserError, match="not a whole NumPy archive"):
        load_own(tmp_path / "fake.npz")
    with pytest.raises(UserError, match="image_size is 0"):
        load_own(tmp_path, image_size=0)


def test_a_spec_is_a_name_or_a_path(save, tmp_path, monkeypatch):
    path = save(images=IMAGES, labels=LABELS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()  # a name comes before a folder
    assert open_dataset("digits").name == "digits"
    assert open_dataset("mine.npz").name == "mine"
    assert open_dataset(str(path), image_size=12).shape == (1, 12, 12)
    assert open_dataset("digits", image_size=14).shape == (1, 14, 14)
    (tmp_path / "pets").mkdir()
    with pytest.raises(UserError, match="pets holds 0 folders"):
        open_dataset("pets")
    with pytest.raises(UserError, match="there is no dataset 'cats'"):
        open_dataset("cats")
