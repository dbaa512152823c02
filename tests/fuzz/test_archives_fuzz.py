"""NumPy archives: read, or refused in a sentence, at every door."""

import zipfile

import numpy as np
from files import IMAGES, LABELS, npy, npz
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mutate import mutated
from trial import fuzz, reads

from fedpn.data.sources import formats
from fedpn.data.sources.npz import headers
from fedpn.data.sources.own import load_own
from fedpn.serving.inputs import read_inputs

PARTS = {"images": npy(IMAGES), "labels": npy(LABELS), "client": npy(np.array(list("abcabc")))}
STORED, PACKED = npz(zipfile.ZIP_STORED, **PARTS), npz(**PARTS)
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
NAMES = ["images", "labels", "client", "classes", "x", "y", "train_images", "train_labels"]
NAMES += ["test_images", "test_labels", "train_client", "test_client"]
KINDS = ["u1", "i1", "<i8", ">u8", "f2", "<f4", ">f8", "g", "?", "c8", "S3", "U3", "M8[s]", "m8[D]"]
KINDS += ["u1,f4"]
# A number that is none, and of which processors complain.
SIGNALLING = np.frombuffer((b"\1" + bytes(6) + b"\x80\xff\x7f" + bytes(6)) * 6, "g")


def at_every_door(path, content):
    """To learn from and to be answered, in whatever form; as a publisher's."""
    path.write_bytes(content)
    reads(lambda: load_own(path), path.name)
    reads(lambda: load_own(path, image_size=4), path.name)
    reads(lambda: read_inputs(path, (1, 8, 8)), path.name)
    reads(lambda: read_inputs(path, (2,)), path.name)
    reads(lambda: formats.medmnist(path), path.name)
    reads(lambda: headers(path), path.name)


@fuzz(examples=60)
@given(content=st.one_of(mutated(STORED), mutated(PACKED)))
def test_archives_with_damage(content, tmp_path):
    at_every_door(tmp_path / "mine.npz", content)


@fuzz(examples=60)
@given(
    images=st.one_of(st.just(PARTS["images"]), mutated(PARTS["images"])),
    labels=st.one_of(mutated(PARTS["labels"]), mutated(PARTS["client"])),
    method=st.sampled_from(METHODS),
)
def test_whole_archives_of_arrays_with_damage(images, labels, method, tmp_path):
    at_every_door(tmp_path / "mine.npz", npz(method, images=images, labels=labels))


def odd_arrays():
    shapes = [(), (0,), (1,), (6,), (6, 1), (6, 2), (6, 8, 8), (6, 8, 8, 3), (6, 0), (1,) * 5]
    shape = st.sampled_from(shapes)
    return st.sampled_from(KINDS).flatmap(lambda kind: arrays(kind, shape))


def bits_as(kind):
    """Numbers of any bits at all, among them those that mean no number."""
    return st.binary(min_size=48, max_size=48).map(lambda bits: np.frombuffer(bits, kind))


@fuzz(examples=150)
@given(held=st.dictionaries(st.sampled_from(NAMES), odd_arrays(), max_size=5))
@example(
    held={
        "train_images": IMAGES,
        "train_labels": LABELS,
        "test_images": IMAGES,
        "test_labels": LABELS.astype("M8[s]"),
    }
)
@example(held={"images": IMAGES, "labels": np.array([0, 1, 2, 0, 1, 1e4000], "g")})
@example(held={"images": IMAGES, "labels": SIGNALLING})
@example(held={"images": IMAGES.astype("g") * np.longdouble("1e4000"), "labels": LABELS})
def test_arrays_of_odd_types_and_shapes(held, tmp_path):
    at_every_door(tmp_path / "mine.npz", npz(**{name: npy(a) for name, a in held.items()}))


@fuzz(examples=60)
@given(
    features=bits_as("f8").map(lambda found: found.reshape(3, 2)),
    labels=st.one_of(*(bits_as(kind).map(lambda found: found[:3]) for kind in ("f8", "g", "U1"))),
    pixels=bits_as("f4").map(lambda found: found.reshape(3, 2, 2)),
)
def test_numbers_of_any_bits(features, labels, pixels, tmp_path):
    for rows in (features, pixels):
        for told in (labels, np.array([0, 1, 0])):
            at_every_door(tmp_path / "mine.npz", npz(x=npy(rows), y=npy(told)))


def test_whole_archives_are_read(tmp_path):
    path = tmp_path / "mine.npz"
    for content in (STORED, PACKED):
        path.write_bytes(content)
        assert reads(lambda: load_own(path))
        assert reads(lambda: read_inputs(path, (1, 8, 8)))
