"""Pictures, alone and in folders: read, or refused in a sentence."""

import pytest
from absurd import texts
from files import FORMATS, picture, with_checksums
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from trial import fuzz, reads

from fedpn.data.sources.own import load_own, open_dataset
from fedpn.data.sources.picture import from_bytes, look, read
from fedpn.data.sources.shades import COLOUR
from fedpn.serving.inputs import read_inputs

MODES = {"PNG": "RGBA", "JPEG": "CMYK", "GIF": "P", "TIFF": "LA", "BMP": "1"}


def variants(form):
    """Pictures of one format with damage, colourful or not."""
    whole = [picture(form), picture(form, MODES.get(form, "L"))]
    damaged = st.one_of(*map(mutated, whole))
    return st.one_of(damaged, damaged.map(with_checksums)) if form == "PNG" else damaged


DAMAGED = {form: variants(form) for form in FORMATS}


@pytest.mark.parametrize("form", FORMATS)
@fuzz(examples=80)
@given(data=st.data())
def test_pictures_with_damage(form, data, tmp_path):
    content = data.draw(DAMAGED[form])
    path = tmp_path / "bad.png"
    path.write_bytes(content)
    if reads(lambda: look(path), path.name):
        reads(lambda: read([path], COLOUR, (8, 8)), path.name)
    reads(lambda: read_inputs(path, (1, 8, 8)), path.name)
    reads(lambda: from_bytes(content, "input 0", (3, 4, 5)), "input 0")


@fuzz(examples=60)
@given(content=st.one_of(*DAMAGED.values()), size=st.sampled_from([None, 1, 5]))
def test_a_folder_in_which_a_picture_has_damage(content, size, tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / kind / "good.png").write_bytes(picture("PNG"))
    (tmp_path / "pets" / "cat" / "bad.jpg").write_bytes(content)
    reads(lambda: load_own(tmp_path / "pets", size), "bad.jpg")
    reads(lambda: read_inputs(tmp_path / "pets", (3, 8, 8)), "bad.jpg")


def on_one_line(text):
    """People's own words are told as they are."""
    return text.replace("\n", "_")


def as_name(text):
    """What may be the name of a file."""
    return on_one_line(text).replace("/", "_").replace("\0", "_")[:60].strip(".") or "_"


NAMES = texts().map(as_name)


@fuzz(examples=40)
@given(
    tree=st.dictionaries(
        NAMES, st.dictionaries(NAMES, st.sampled_from(["file", "folder"]), max_size=3), max_size=3
    )
)
def test_folders_of_any_names_and_depths(tree, tmp_path_factory):
    root = tmp_path_factory.mktemp("any")
    for outer, inner in tree.items():
        (root / outer).mkdir()
        for name, kind in inner.items():
            if kind == "folder":
                (root / outer / name).mkdir()
            place = root / outer / name if kind == "file" else root / outer / name / "a.png"
            place.write_bytes(picture("PNG"))
    reads(lambda: load_own(root))
    reads(lambda: read_inputs(root, (1, 8, 8)))


@fuzz(examples=100)
@given(spec=texts().map(on_one_line), size=st.sampled_from([None, 8]))
@example(spec="x" * 300, size=None)
@example(spec="x/" * 600, size=None)
@example(spec="\0/a.npz", size=None)
@example(spec="~nosuchuser/a.csv", size=None)
def test_any_word_for_a_dataset(spec, size):
    reads(lambda: open_dataset(spec, size))


@pytest.mark.parametrize("form", FORMATS)
def test_whole_pictures_are_read(form, tmp_path):
    path = tmp_path / "good.png"
    path.write_bytes(picture(form))
    assert reads(lambda: look(path))
    assert reads(lambda: read_inputs(path, (1, 8, 8)))
