"""Archives that mean harm, or only look like it: one sentence each, at once, at every door."""

import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest
from hostile import FEATURES, IMAGES, LABELS, at_once, cut_and_damaged, doors, refused  # noqa: F401 (a fixture of every test)

from fedpn.core.errors import UserError
from fedpn.data.sources import formats, npz
from fedpn.data.sources.own import load_own
from fedpn.serving.inputs import read_inputs


def packed(path, claim=None, **members):
    """An archive of these members, compressed, whose directory claims another size of each."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
        for info in file.infolist() if claim else ():
            info.file_size = claim
    return path


def stored(array, shape=None, dtype=None):
    """An array's bytes, under a head that may promise something else."""
    file = io.BytesIO()
    head = {
        "descr": dtype or array.dtype.str,
        "fortran_order": False,
        "shape": shape or array.shape,
    }
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue() + array.tobytes()


def _encrypted(path):
    packed(path, images=stored(IMAGES), labels=stored(LABELS))
    content = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := content.find(mark, place + 1)) >= 0:
            content[place + flags] |= 1
    path.write_bytes(content)


def _nested(path):
    head = b"{'descr': " + b"(" * 4000 + b")" * 4000 + b", 'fortran_order': False, 'shape': (6,)}\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
    packed(path, images=content, labels=stored(LABELS))


def _many(path):
    packed(path, **{f"a{i}": b"" for i in range(npz.ARRAYS + 1)})


def _zeros(path):
    """Half a gigabyte in half a megabyte: no lie."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("images.npy", "w", force_zip64=True) as member:
            member.write(stored(np.empty(0, np.uint8), (600, 1000, 1000)))
            for _ in range(600):
                member.write(bytes(10**6))
        file.writestr("labels.npy", stored(np.arange(600) % 2))


ARCHIVES = {
    "claims 6 GB": (
        lambda p: packed(p, 3 << 30, images=os.urandom(3 << 20), labels=stored(LABELS)),
        r"has 3\.0 MB and claims to unpack to 6\.0 GB, more than 200 times as much",
    ),
    "claims 60 GB": (
        lambda p: packed(p, 30 << 30, images=stored(IMAGES), labels=stored(LABELS)),
        r"would take 60\.0 GB and at most 8\.0 GB are read",
    ),
    "unpacks to 600 MB": (_zeros, r"and claims to unpack to 572\.2 MB"),
    "many arrays": (_many, "holds 1001 arrays and at most 1000 are read"),
    "a head that promises more": (
        lambda p: packed(p, images=stored(IMAGES, (10**9, 8, 8)), labels=stored(LABELS)),
        r"'images' promises the shape \(1000000000, 8, 8\) of uint8 in 384 bytes",
    ),
    "a head that promises less than nothing": (
        lambda p: packed(p, images=stored(IMAGES, (-6, -8, 8)), labels=stored(LABELS)),
        "not a whole NumPy archive",
    ),
    "a head that goes deep": (_nested, "not a whole NumPy archive"),
    "encrypted": (_encrypted, "not a whole NumPy archive .*encrypted"),
    "an array of another version": (
        lambda p: packed(p, images=b"\x93NUMPY\x09\x00" + bytes(90), labels=stored(LABELS)),
        "'images' has the version",
    ),
    "objects": (
        lambda p: np.savez(p, images=np.array([{}] * 6), labels=LABELS),
        "'images' of .* holds Python objects",
    ),
    "an array, no archive": (
        lambda p: p.write_bytes(stored(IMAGES)),
        r"not a whole NumPy archive \(File is not a zip file\)",
    ),
    "words": (lambda p: p.write_text("a,label\n1,2\n"), "not a whole NumPy archive"),
    "a pickle": (lambda p: p.write_bytes(b"\x80\x04N."), "not a whole NumPy archive"),
    "nothing in it": (lambda p: packed(p), "holds nothing|only nothing"),
    "no rows": (
        lambda p: np.savez(p, images=IMAGES[:0], labels=LABELS[:0]),
        "'images' of .* is empty|has no rows",
    ),
    "records": (
        lambda p: np.savez(p, images=np.zeros((6, 8, 8), "u1,u1"), labels=LABELS),
        "has the type .*; images are bytes",
    ),
    "a pixel that is none": (
        lambda p: np.savez(p, images=np.where(IMAGES == 70, np.nan, 0.5), labels=LABELS),
        r"row 1 of .* holds nan in the pixel \(0, 6\), which is missing or infinite",
    ),
}


@doors
@pytest.mark.parametrize(("make", "words"), ARCHIVES.values(), ids=ARCHIVES)
def test_a_bad_archive_is_refused_in_words(make, words, door, tmp_path):
    path = tmp_path / "mine.npz"
    make(path)
    refused(door, path, words)


@doors
def test_a_cut_or_damaged_archive_is_read_or_refused(door, tmp_path):
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, images=IMAGES, labels=LABELS)
    cut_and_damaged(door, path, "not a whole NumPy archive", step=23, times=200)


def test_whole_archives_of_zeros_are_no_bombs(tmp_path):
    np.savez_compressed(tmp_path / "mine.npz", x=np.zeros((10**5, 100)), y=np.arange(10**5) % 2)
    assert len(load_own(tmp_path / "mine.npz")) == 10**5


@pytest.mark.parametrize(
    ("value", "told"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (1e60, r"1e\+60")]
)
@pytest.mark.parametrize(
    "door", [load_own, lambda path: read_inputs(path, (2,))], ids=["train", "predict"]
)
def test_a_feature_that_is_no_number_is_named_by_row_and_column(value, told, door, tmp_path):
    x = FEATURES.copy()
    x[4, 1] = value
    np.savez(tmp_path / "mine.npz", x=x, y=LABELS)
    words = rf"row 4 of .* holds {told} in column 1, which is missing or infinite"
    refused(door, tmp_path / "mine.npz", words)


SURROGATE = np.array(["a", "b", "c"] * 2, dtype="U2")
SURROGATE.view(np.uint32)[2] = 0xD800
BEYOND = SURROGATE.copy()
BEYOND.view(np.uint32)[2] = 0x110000


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0, 1, 1e30] * 2), r"row 2 of 'y' of .* is 1e\+30; class numbers count from 0"),
        (np.array([0, 1, 2**64 - 1] * 2, np.uint64), "row 2 of 'y' of .* is 18446744073709551615"),
        (np.array([0, 1, 10**12] * 2), "goes up to class 1000000000000 but no row has class 2"),
        (np.array([b"a", b"b", b"\xe4"] * 2), r"row 2 of 'y' of .* is the bytes b'\\xe4'"),
        (SURROGATE, "holds a name that is no text"),
        (BEYOND, "holds a name that is no text"),
        (np.array(["a", "b" * 5000, "c"] * 2), "row 1 of 'y' .* is longer than 200 characters"),
    ],
    ids=["1e30", "2**64", "10**12", "bytes", "surrogate", "no character", "long"],
)
def test_absurd_labels(labels, words, tmp_path):
    np.savez(tmp_path / "mine.npz", x=FEATURES, y=labels)
    refused(load_own, tmp_path / "mine.npz", words)


@pytest.mark.parametrize("classes", [SURROGATE[1:4], np.array([b"a", b"b", b"\xe4"])])
def test_absurd_names_of_classes(classes, tmp_path):
    np.savez(tmp_path / "mine.npz", x=FEATURES, y=LABELS, classes=classes)
    with pytest.raises(UserError, match=r"'classes' of .*(no text|the bytes)"):
        load_own(tmp_path / "mine.npz")


PUBLISHED = {
    "empty": b"",
    "words": b"words",
    "without axes": gzip.compress(b"\x00\x00\x08"),
    "cut among its axes": gzip.compress(b"\x00\x00\x08\xff\x00"),
    "cut": gzip.compress(b"\x00\x00\x08\x01\x7f\xff\xff\xffabc"),
    "cut when packed": gzip.compress(bytes(1000))[:-20],
    "a packer's first bytes": b"\x1f\x8b",
}


@pytest.mark.parametrize("content", PUBLISHED.values(), ids=PUBLISHED)
def test_a_publishers_file_that_is_damaged(content, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    refused(formats.read_idx, path, "fetch it again")
    refused(formats.cifar, path, "fetch it again")
    refused(formats.medmnist, path, "again")
    refused(lambda p: formats.svhn(p, p), path, "fetch it again")


def test_a_publishers_file_that_unpacks_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "UNPACKED", 10**6)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x01" + bytes(10**7)))
    refused(formats.read_idx, path, r"unpacks to more than 1000000 bytes; fetch it again")
