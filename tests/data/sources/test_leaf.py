"""FEMNIST by writer, from files of LEAF's form."""

import json

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.partition import partition, usual
from fedpn.data.sources.own import open_dataset

RNG = np.random.default_rng(0)
WRITERS = {name: RNG.integers(0, 256, (4, 784)) for name in ("f0001_41", "f0000_14", "f0123_07")}
LABELS = {"f0001_41": [0, 9, 10, 61], "f0000_14": [35, 36, 0, 0], "f0123_07": [10, 10, 9, 61]}


def write(path, rows=slice(None), names=tuple(WRITERS)):
    """As LEAF's preprocess.sh does it: pixels as shares of 255, white as 1."""
    data = {
        name: {
            "x": (WRITERS[name][rows] / 255).tolist(),
            "y": LABELS[name][rows],
        }
        for name in names
    }
    counts = [len(part["y"]) for part in data.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"users": list(names), "num_samples": counts, "user_data": data}
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def test_writers_are_clients_and_characters_classes(tmp_path):
    dataset = open_dataset(str(write(tmp_path / "all_data_0.json")))
    assert dataset.shape == (1, 28, 28)
    assert dataset.classes == ("0", "9", "A", "Z", "a", "z")
    assert dataset.clients == ("f0000_14", "f0001_41", "f0123_07")
    for name, rows in WRITERS.items():
        mine = dataset.client == dataset.clients.index(name)
        np.testing.assert_array_equal(dataset.x[mine].reshape(4, 784), rows)
    told = [dataset.classes[i] for i in dataset.y]
    assert told == list("09Az" + "Za00" + "AA9z")
    assert dataset.remarks == ("6 of FEMNIST's 62 classes occur",)


def test_the_folder_that_leaf_makes(tmp_path):
    """Files of some writers each, and each writer's rows in train and test."""
    data = tmp_path / "femnist" / "data"
    names = list(WRITERS)
    for part, rows in (("train", slice(3)), ("test", slice(3, None))):
        write(data / part / "all_data_0.json", rows, names[:2])
        write(data / part / "all_data_1.json", rows, names[2:])
    (data / "intermediate").mkdir()
    (data / "intermediate" / "images_by_writer.pkl").write_bytes(b"never opened")
    dataset = open_dataset(str(data))
    assert np.bincount(dataset.client).tolist() == [4, 4, 4]
    assert dataset.remarks[0] == "the folders test, train were pooled; rows are dealt afresh"
    for name, rows in WRITERS.items():
        mine = dataset.x[dataset.client == dataset.clients.index(name)]
        np.testing.assert_array_equal(mine.reshape(4, 784), rows)
    assert open_dataset(str(data), image_size=14).shape == (1, 14, 14)


def test_shares_between_two_bytes_become_the_nearer(tmp_path):
    path = tmp_path / "a.json"
    rows = {"x": [[0.999] * 784, [0.001] * 784], "y": [0, 1]}
    path.write_text(json.dumps({"user_data": {"a": rows}}), encoding="utf-8")
    assert open_dataset(str(path)).x[:, 0, 0, 0].tolist() == [255, 0]


def test_the_partition_is_natural(tmp_path):
    dataset = open_dataset(str(write(tmp_path / "all_data_0.json")))
    assert usual(dataset) == "natural"
    owned = partition(dataset, "natural", clients=3, seed=0)
    assert [dataset.client[rows].tolist() for rows in owned] == [[0] * 4, [1] * 4, [2] * 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": [[0.5] * 783]}, "not FEMNIST as LEAF makes it"),
        ({"x": [[1.5] * 784]}, "not FEMNIST as LEAF makes it"),
        ({"x": [[float("nan")] * 784]}, "not FEMNIST as LEAF makes it"),
        ({"y": [62]}, "class numbers below 62"),
        ({"y": [-1]}, "class numbers below 62"),
        ({"y": [0.5]}, "class numbers below 62"),
        ({"y": [1, 2]}, "class numbers below 62"),
        ({}, "holds one class only"),
        ({"x": [], "y": []}, "holds no pictures of any writer"),
    ],
)
def test_other_files_are_refused(change, words, tmp_path):
    path = tmp_path / "all_data_0.json"
    rows = {"x": [[0.5] * 784], "y": [3]} | change
    path.write_text(json.dumps({"users": ["a"], "user_data": {"a": rows}}), encoding="utf-8")
    with pytest.raises(UserError, match=words) as caught:
        open_dataset(str(path))
    assert path.name in str(caught.value)


def test_a_file_of_json_beside_classes_is_not_leafs(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(b"a picture")
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(UserError, match=r"notes\.json lies beside the folders of the classes"):
        open_dataset(str(tmp_path))
