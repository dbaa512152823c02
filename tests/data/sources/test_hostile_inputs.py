"""What is no file and pictures that mean harm: one sentence each, at once, at every door."""

import contextlib
import io
import os
import socket
import struct
import zlib

import numpy as np
import pytest
from hostile import IMAGES, LABELS, at_once, doors, refused  # noqa: F401 (a fixture of every test)
from PIL import EpsImagePlugin, Image

from fedpn.core.errors import UserError
from fedpn.data.sources import picture
from fedpn.data.sources.catalogue import catalogue
from fedpn.data.sources.datasets import get
from fedpn.data.sources.own import load_own
from fedpn.serving.inputs import read_inputs


def pictures(tmp_path, name="bad.png", content=b""):
    """A folder of two classes, one picture of which is this."""
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.fromarray(IMAGES[0]).save(tmp_path / "pets" / kind / "good.png")
    bad = tmp_path / "pets" / "cat" / name
    if content:
        bad.write_bytes(content)
    return tmp_path / "pets", bad


# What is no file


def _socket(path):
    # Their names must be short.
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


ODD = {
    "pipe": (os.mkfifo, "is a pipe where a file is needed"),
    "socket": (_socket, "is a socket where a file is needed"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device where a file is needed"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "is a device where a file is needed"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "cannot be found"),
    "link to itself": (lambda path: path.symlink_to(path.name), "cannot be found"),
    "empty": (lambda path: path.touch(), "is empty"),
}
odd = pytest.mark.parametrize(("make", "words"), ODD.values(), ids=ODD)


@odd
@doors
@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet", ".docx"])
def test_what_is_no_file_is_never_opened(make, words, door, ending, tmp_path):
    path = tmp_path / f"odd{ending}"
    make(path)
    refused(door, path, words)


@odd
@doors
def test_nor_in_a_folder(make, words, door, tmp_path):
    folder, bad = pictures(tmp_path)
    make(bad)
    refused(lambda _: door(folder), bad, words)


def test_a_pipe_among_the_named_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPN_DATA", str(tmp_path))
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path / "cache"))
    os.mkfifo(tmp_path / "odd.npz")
    (tmp_path / "folder.npz").mkdir()
    assert not {"odd", "folder"} & {entry.name for entry in catalogue()}
    (tmp_path / "cifar10").mkdir()
    os.mkfifo(tmp_path / "cifar10" / "cifar-10-binary.tar.gz")
    with pytest.raises(UserError, match="is a pipe where a file is needed"):
        get("cifar10")


# Pictures

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"


@doors
def test_postscript_under_another_name_starts_no_ghostscript(door, tmp_path, monkeypatch):
    started = tmp_path / "started"
    fake = tmp_path / "bin" / "gs"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    folder, bad = pictures(tmp_path, content=EPS)
    refused(lambda _: door(folder), bad, r"not a picture that can be read \(PNG, JPEG")
    assert not started.exists()


def saved(form, size=(8, 8), mode="L"):
    file = io.BytesIO()
    Image.new(mode, size, 7).save(file, form)
    return file.getvalue()


def bomb(width, height):
    """A PNG of few bytes whose head promises very many."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10**6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


CUT = ("PNG", "BMP", "GIF", "PPM")
DAMAGED = "damaged picture|not a picture that can be read"
PICTURES = {
    "81 million": (bomb(9000, 9000), "9000×9000 pixels and at most 64 million are read"),
    "169 million": (bomb(13000, 13000), "13000×13000 pixels and at most 64 million are read"),
    "3600 million": (bomb(60000, 60000), "too many pixels .*; make it smaller"),
    "beyond count": (bomb(2**31 - 1, 2**31 - 1), "too many pixels"),
    "words": (b"words", "not a picture that can be read"),
    "first bytes": (b"\x89PNG\r\n\x1a\n", "not a picture that can be read"),
    **{f"cut {form}": (saved(form)[: -len(saved(form)) // 3], DAMAGED) for form in CUT},
    "cut JPEG": (saved("JPEG", (640, 640))[:2000], DAMAGED),
    "cut WEBP": (saved("WEBP", (64, 64))[:30], DAMAGED),
    "cut TIFF": (saved("TIFF")[:60], DAMAGED),
    "a format of icons": (saved("ICO"), "not a picture that can be read"),
}


@doors
@pytest.mark.parametrize(("content", "words"), PICTURES.values(), ids=PICTURES)
def test_a_bad_picture_is_refused_in_words(content, words, door, tmp_path):
    folder, bad = pictures(tmp_path, content=content)
    refused(lambda _: door(folder), bad, words)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_every_common_format_is_read_whatever_its_ending(form, tmp_path):
    folder, _ = pictures(tmp_path, content=saved(form))
    assert load_own(folder).shape[1:] == (8, 8)
    assert read_inputs(folder, (1, 8, 8)).rows.shape == (3, 1, 8, 8)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"])
def test_damaged_pictures_are_read_or_refused_but_never_a_traceback(form, tmp_path):
    whole, rng = bytearray(saved(form, (16, 16), "RGB")), np.random.default_rng(0)
    path = tmp_path / "bad.png"
    for _ in range(150):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            picture.look(path)
            picture.read([path], "RGB", (8, 8))
        except UserError as error:
            assert "\n" not in str(error)


def test_pictures_that_would_fill_the_memory(tmp_path):
    folder, _ = pictures(tmp_path)
    with pytest.raises(UserError, match=r"2 images of 1000000×1000000 would take 1862\.6 GB"):
        load_own(folder, image_size=10**6)
    np.savez(tmp_path / "mine.npz", images=IMAGES, labels=LABELS)
    with pytest.raises(UserError, match=r"6 images of 1000000×1000000 would take .* smaller size"):
        load_own(tmp_path / "mine.npz", image_size=10**6)


def test_names_that_are_no_text(tmp_path):
    folder, bad = pictures(tmp_path)
    strange = os.fsdecode(b"b\xff.png")
    Image.fromarray(IMAGES[0]).save(bad.with_name(strange), "PNG")
    names = read_inputs(folder, (1, 8, 8)).names
    assert "cat/b\\xff.png" in names
    (folder / "cat").rename(folder / os.fsdecode(b"c\xff"))
    with pytest.raises(UserError, match="has a name that is no text; rename it"):
        load_own(folder)
