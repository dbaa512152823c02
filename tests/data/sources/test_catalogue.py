"""The catalogue: true counts, without reading pixels."""

import numpy as np
import pytest

from fedpn.data.sources import datasets
from fedpn.data.sources.catalogue import catalogue, describe_name
from fedpn.data.sources.publishers import PUBLISHERS


def test_what_is_not_at_hand_says_how_to_get_it(empty_place):
    entry = describe_name("organcmnist")
    assert not entry.at_hand
    assert entry.where == "not at hand: fedpn data get organcmnist (zenodo.org)"
    assert (entry.rows, entry.classes, entry.size) == (23583, 11, "28×28×1")


def test_what_is_at_hand_shows_its_own_counts(empty_place):
    path = empty_place / "cifar10.npz"
    images = np.zeros((20, 32, 32, 3), np.uint8)
    np.savez(path, train_images=images, train_labels=np.arange(20) % 10)
    entry = describe_name("cifar10")
    assert entry.at_hand
    assert (entry.where, entry.rows, entry.classes, entry.size) == (str(path), 20, 10, "32×32×3")
    assert entry.note == "a subset: 20 of 50000 training rows, 0 of 10000 test rows"
    assert "Krizhevsky" in entry.licence


def test_one_bad_file_does_not_hide_the_others(empty_place):
    (empty_place / "mnist.npz").write_text("not an archive")
    entries = {entry.name: entry for entry in catalogue()}
    assert "not a whole NumPy archive" in entries["mnist"].note
    assert entries["digits"].at_hand


def test_files_put_there_by_hand_are_seen(empty_place):
    (empty_place / "svhn").mkdir()
    assert describe_name("svhn").where == f"{empty_place / 'svhn'}, to be converted"


def test_it_reads_labels_but_no_pixels(empty_place, monkeypatch):
    np.savez(
        empty_place / "letters.npz",
        images=np.zeros((30, 8, 8), np.uint8),
        labels=np.arange(30) % 3,
    )
    read = []
    original = np.lib.npyio.NpzFile.__getitem__
    spy = lambda file, key: read.append(key) or original(file, key)  # noqa: E731
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", spy)
    assert describe_name("letters").classes == 3
    assert read == ["labels"]


def test_the_catalogue_agrees_with_what_is_loaded(real_data):
    for entry in catalogue():
        if entry.at_hand and entry.rows < 20_000:
            dataset = datasets.load(entry.name)
            assert (len(dataset), len(dataset.classes)) == (entry.rows, entry.classes)
            assert dataset.note == entry.note


@pytest.mark.parametrize("name", ["cifar10", "svhn", "organamnist"])
def test_subsets_are_called_so(name, real_data):
    entry = describe_name(name)
    whole = sum(PUBLISHERS[name].rows.values())
    assert entry.note.startswith("a subset: ") == (entry.rows < whole)
