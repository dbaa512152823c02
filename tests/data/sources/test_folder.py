"""Folders of images by class."""

import numpy as np
import pytest
from PIL import Image

from fedpn.core.errors import UserError
from fedpn.data.sources.datasets import load
from fedpn.data.sources.folder import load_folder


@pytest.fixture
def put(tmp_path):
    """Writes a picture of one shade; grey is one number, colour three."""

    def write(name, shade=100, size=(8, 8), mode=None):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = mode or ("L" if isinstance(shade, int) else "RGB")
        Image.new(mode, size, shade).save(path)
        return tmp_path / "pets"

    return write


def test_classes_are_the_folders_in_order(put):
    put("dog/1.png", 1)
    put("cat/2.png", 2)
    dataset = load_folder(put("cat/1.png", 3))
    assert (dataset.name, dataset.classes) == ("pets", ("cat", "dog"))
    assert dataset.y.tolist() == [0, 0, 1]
    assert dataset.x[:, 0, 0, 0].tolist() == [3, 2, 1]
    assert dataset.remarks == ()


def test_digits_saved_as_pictures_come_back(tmp_path):
    digits = load("digits")
    for i in range(40):
        place = tmp_path / digits.classes[digits.y[i]]
        place.mkdir(exist_ok=True)
        Image.fromarray(digits.x[i, 0]).save(place / f"{i:02}.png")
    again = load_folder(tmp_path)
    order = np.argsort(digits.y[:40], kind="stable")
    np.testing.assert_array_equal(again.x, digits.x[order])
    np.testing.assert_array_equal(again.y, digits.y[order])


def test_mixed_sizes_are_resized_and_it_is_said(put):
    put("cat/1.png", size=(8, 8))
    path = put("dog/1.png", size=(20, 10))
    dataset = load_folder(path)
    assert dataset.shape == (1, 32, 32)
    assert dataset.remarks[0].startswith("2 images of 2 sizes, 8×8 to 20×10, were resized to 32×32")
    named = load_folder(path, image_size=16)
    assert named.shape == (1, 16, 16)
    assert named.remarks == ("2 images of 2 sizes, 8×8 to 20×10, were resized to 16×16",)


def test_large_images_keep_their_proportions_and_it_is_said(put):
    put("cat/1.png", size=(1200, 400))
    path = put("dog/1.png", size=(1200, 400))
    dataset = load_folder(path)
    assert dataset.shape == (1, 85, 256)
    way = "; --set data.image_size=… names another size"
    assert dataset.remarks == (f"2 images of 1200×400 were resized to 256×85{way}",)
    assert load_folder(path, image_size=300).shape == (1, 300, 300)


def test_grey_and_colour_become_colour_and_it_is_said(put):
    put("cat/1.png", 50)
    dataset = load_folder(put("dog/1.png", (10, 20, 30)))
    assert dataset.x[:, :, 0, 0].tolist() == [[50, 50, 50], [10, 20, 30]]
    assert dataset.remarks == ("1 grey images of 2 were brought to colour",)


def test_turned_photographs_stand_upright(put):
    path = put("cat/1.jpg", size=(16, 8))
    turned = Image.new("L", (8, 16), 200)
    turned.paste(20, (0, 0, 8, 8))  # dark above, which is right when it stands upright
    exif = turned.getexif()
    exif[0x0112] = 6  # shown turned by a quarter, so 16 wide
    (path / "dog").mkdir()
    turned.save(path / "dog" / "1.jpg", exif=exif)
    dataset = load_folder(path)
    assert dataset.shape == (1, 8, 16)
    assert dataset.remarks == ()
    assert dataset.x[1, 0, :, 0].min() > 150
    assert dataset.x[1, 0, :, -1].max() < 70


def test_ready_made_parts_are_pooled_and_it_is_said(put):
    for name in ("train/cat/1.png", "train/dog/1.png", "test/dog/1.png"):
        path = put(name)
    dataset = load_folder(path)
    assert (dataset.classes, dataset.y.tolist()) == (("cat", "dog"), [0, 1, 1])
    assert dataset.remarks == ("the folders test, train were pooled; rows are dealt afresh",)


def test_outer_folders_are_clients(put):
    for name in ("rome/cat/1.png", "oslo/dog/1.png", "oslo/cat/2.png"):
        path = put(name)
    dataset = load_folder(path)
    assert (dataset.classes, dataset.y.tolist()) == (("cat", "dog"), [0, 0, 1])
    assert dataset.clients == ("oslo", "rome")
    assert [dataset.clients[i] for i in dataset.client] == ["oslo", "rome", "oslo"]


def test_a_class_may_be_called_test(put):
    put("test/1.png")
    assert load_folder(put("train/1.png")).classes == ("test", "train")


def test_clutter_is_passed_over(put):
    put("cat/1.png")
    path = put("dog/1.png")
    (path / ".DS_Store").write_text("clutter")
    (path / "cat" / "Thumbs.db").write_text("clutter")
    (path / "cat" / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    assert len(load_folder(path)) == 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "cat" / "notes.txt").write_text("x"), r"notes\.txt is not a picture"),
        (lambda path: (path / "bird").mkdir(), "bird is empty"),
        (lambda path: (path / "cat.png").write_text("x"), r"cat\.png lies beside the folders"),
        (lambda path: (path / "cat" / "old").mkdir(), "old is a folder where pictures"),
        (lambda path: cut(path / "cat" / "1.png"), r"1\.png is a damaged picture"),
        (
            lambda path: Image.new("LAB", (8, 8)).save(path / "cat" / "2.tif"),
            r"2\.tif is a picture of the mode 'LAB'; save it in grey or in colour",
        ),
    ],
)
def test_a_bad_folder_is_refused_in_words(put, spoil, message):
    put("cat/1.png", size=(64, 64), shade=(1, 2, 3))
    path = put("dog/1.png")
    spoil(path)
    with pytest.raises(UserError, match=message):
        load_folder(path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def test_one_class_is_refused(put):
    with pytest.raises(UserError, match="holds 1 folders with pictures"):
        load_folder(put("cat/1.png"))
