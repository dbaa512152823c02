"""Named sets: found, noted, refused in words."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.sources.datasets import find, load, names, small_digits
from fedpn.data.sources.publishers import PUBLISHERS


def save(path, train=30, test=10, **more):
    labels = np.arange(train + test) % 10
    arrays = {
        "train_images": np.zeros((train, 28, 28), np.uint8),
        "train_labels": labels[:train],
        "test_images": np.ones((test, 28, 28), np.uint8),
        "test_labels": labels[train:, None],
    }
    np.savez(path, **(arrays | more))
    return path


def test_digits_are_built_in():
    digits = load("digits")
    assert digits.x.shape == (1797, 1, 28, 28)
    assert digits.x.dtype == np.uint8
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_parts_are_pooled_in_order(empty_place):
    save(empty_place / "mnist.npz")
    dataset = load("mnist")
    assert dataset.shape == (1, 28, 28)
    assert dataset.x[:, 0, 0, 0].tolist() == [0] * 30 + [1] * 10
    assert dataset.y.tolist() == [i % 10 for i in range(40)]


def test_the_users_place_comes_before_the_cache(empty_place, cache):
    cache.mkdir()
    save(cache / "mnist.npz")
    assert find("mnist") == cache / "mnist.npz"
    save(empty_place / "mnist.npz")
    assert find("mnist") == empty_place / "mnist.npz"


def test_a_subset_says_so(empty_place):
    save(empty_place / "svhn.npz")
    assert load("svhn").note == (
        "a subset: 30 of 73257 training rows, 10 of 26032 test rows; "
        "crops of one photograph may part between training and test rows"
    )


def test_other_archives_of_the_same_form_are_names_too(empty_place):
    save(empty_place / "letters.npz", classes=np.array(list("ABCDEFGHIJ")))
    assert "letters" in names()
    assert load("letters").classes == tuple("ABCDEFGHIJ")


def test_a_misspelt_name_is_told_the_nearest(empty_place):
    with pytest.raises(UserError, match=r"did you mean 'fashionmnist'.*fedpn data list"):
        load("fashion-mnist")
    save(empty_place / "letters.npz")
    with pytest.raises(UserError, match="did you mean 'letters'"):
        load("leters")


def test_a_damaged_archive_is_refused(empty_place):
    path = save(empty_place / "mnist.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"mnist\.npz is not a whole NumPy archive"):
        load("mnist")


def test_flipped_bits_are_noticed(empty_place):
    path = save(empty_place / "mnist.npz")
    content = bytearray(path.read_bytes())
    content[5000] ^= 1  # among the pixels
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a whole NumPy archive"):
        load("mnist")


def test_an_archive_with_more_classes_than_its_name_has_is_refused(empty_place):
    save(empty_place / "pneumoniamnist.npz")
    with pytest.raises(UserError, match="holds 10 classes and 'pneumoniamnist' has 2"):
        load("pneumoniamnist")


def test_the_operating_systems_package_is_taken(tiny, tmp_path, monkeypatch, empty_place):
    small = tiny("fashionmnist")
    for file, content in small.files.items():
        (tmp_path / file).write_bytes(content)
    packaged = replace(
        PUBLISHERS["fashionmnist"], packaged=(tmp_path,), url="http://nowhere.invalid"
    )
    monkeypatch.setitem(PUBLISHERS, "fashionmnist", packaged)
    np.testing.assert_array_equal(load("fashionmnist").x, small.images)


def test_a_package_of_too_few_rows_is_refused(tiny, tmp_path, monkeypatch, empty_place):
    for file, content in tiny("fashionmnist").files.items():
        (tmp_path / file).write_bytes(content)
    packaged = replace(
        PUBLISHERS["fashionmnist"], packaged=(tmp_path,), rows={"train": 60000, "test": 10000}
    )
    monkeypatch.setitem(PUBLISHERS, "fashionmnist", packaged)
    with pytest.raises(UserError, match="hold 20 train rows and should hold 60000"):
        load("fashionmnist")
    assert find("fashionmnist") is None


def test_every_publisher_is_complete():
    for name, publisher in PUBLISHERS.items():
        assert publisher.url.startswith("http"), name
        assert publisher.licence, name
        assert set(publisher.rows) <= {"train", "val", "test"}, name
        assert all(len(bytes.fromhex(md5)) == 16 for md5 in publisher.files.values()), name
        assert len(set(publisher.classes)) == len(publisher.classes), name


def test_classes_of_many_names_are_in_their_order():
    fine = PUBLISHERS["cifar100"].classes
    assert (len(fine), list(fine)) == (100, sorted(fine))  # as the archive numbers them
    assert [fine[i] for i in (0, 19, 47, 99)] == ["apple", "cattle", "maple_tree", "worm"]
    letters = PUBLISHERS["emnist"].classes
    assert (len(letters), letters[10], letters[36], letters[46]) == (47, "A", "a", "t")


def test_femnist_says_how_one_has_it(empty_place):
    with pytest.raises(UserError, match=r"'femnist' is never downloaded; .* LEAF's .* path"):
        load("femnist")


def test_the_import_is_light():
    code = "import sys, fedpn.data.sources.own; print([m for m in sys.modules if m in %r])"
    heavy = {"scipy", "PIL", "sklearn", "pooch", "pyarrow", "pydicom", "rich", "matplotlib"}
    ran = subprocess.run(
        [sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mnist", [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]),
        ("fashionmnist", [7000] * 10),
        ("organamnist", [608, 444, 404, 423, 1173, 1186, 1871, 1088, 1152, 916, 1080]),
        ("cifar10", [3500] * 10),
        ("svhn", [2021, 5743, 4484, 3427, 3005, 2795, 2323, 2302, 2015, 1885]),
    ],
)
def test_the_real_sets_hold_their_true_counts(name, counts, real_data):
    if not (real_data / f"{name}.npz").exists():
        pytest.skip(f"no {name}.npz in FEDPN_DATA")
    dataset = load(name)
    found = np.bincount(dataset.y)
    whole = len(dataset) == sum(PUBLISHERS[name].rows.values())
    assert whole or found.tolist() == counts
    assert whole or "a subset" in dataset.note
    assert len(dataset.classes) == len(counts)


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    images, labels = small_digits()
    theirs = load_digits()
    np.testing.assert_array_equal(images, theirs.images)
    np.testing.assert_array_equal(labels, theirs.target)
    assert labels.dtype == np.int64
