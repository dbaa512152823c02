"""The picture of a federation."""

import numpy as np
from PIL import Image

from fedpn.data.dataset import Dataset
from fedpn.data.federation import federate
from fedpn.data.partition import partition
from fedpn.data.sources.datasets import load
from fedpn.reporting.gallery import bubbles, bubbles_png


def draw(data, clients, path, scheme="classes"):
    bubbles(data, federate(data.y, partition(data, scheme, clients, 0), 0), path)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_images_stand_beside_bubbles(tmp_path):
    digits = load("digits")
    picture = draw(digits, 8, tmp_path / "deep" / "digits.png")
    height, width, _ = picture.shape
    assert width > 600
    assert height > 400
    colours = {tuple(c) for c in picture[::3, ::3].reshape(-1, 3).tolist()}
    assert (31, 119, 180) in colours  # the first class
    assert (23, 190, 207) in colours  # the last
    assert (picture[:, width // 2 :] == 0).all(axis=2).mean() > 0.05  # black, behind digits
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["digits.png"]


def test_a_table_has_bubbles_only(tmp_path):
    labels = np.arange(120) % 12
    features = Dataset("table", np.zeros((120, 3), np.float32), labels, tuple("abcdefghijkl"))
    picture = draw(features, 3, tmp_path / "table.png", scheme="iid")
    assert not (picture == 0).all(axis=2).any()
    assert len({tuple(c) for c in picture.reshape(-1, 3).tolist()}) > 12


def test_a_long_federation_is_cut(tmp_path):
    labels = np.arange(4000) % 4
    features = Dataset("table", np.zeros((4000, 3), np.float32), labels, tuple("abcd"))
    assert draw(features, 500, tmp_path / "table.png", scheme="iid").shape[0] < 4000


def test_names_are_drawn_as_they_are(tmp_path):
    names = ("$x_", "a$b^", "<script>alert(1)</script>", "\x1b[31m")
    labels = np.arange(120) % 4
    data = Dataset("$my_: data^$", np.zeros((120, 2, 5, 5), np.uint8), labels, names, clients=names)
    federation = federate(data.y, partition(data, "iid", 4, 0), 0)
    bubbles(data, federation, tmp_path / "a.png")
    assert bubbles_png(data, federation) == (tmp_path / "a.png").read_bytes()
