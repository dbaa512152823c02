"""Pictures of every mode, held against Pillow and against known numbers; one way at every door."""

import io
import struct
from zlib import compress, crc32

import numpy as np
import pytest
from PIL import Image, ImageDraw

from fedpn.core.errors import UserError
from fedpn.data.sources.folder import load_folder
from fedpn.data.sources.picture import from_bytes, from_pillow
from fedpn.service.decode import decode
from fedpn.serving.conform import _picture
from fedpn.serving.inputs import read_inputs

SIZE = (16, 12)
RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (12, 16, 3), dtype=np.uint8)
TWELVE = RNG.integers(0, 2**12, (12, 16)).astype(np.uint16)  # 12 bits, in 16
FLOATS = RNG.random((12, 16), dtype=np.float32)


def packed(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def own_window(values):
    """The rule that the docs tell, by itself."""
    low, high = np.percentile(values, [0.5, 99.5])
    return np.rint(np.clip((values - low) / (high - low), 0, 1) * 255).astype(np.uint8)


def with_hole():
    """Red, through which one sees in part; the lower half not at all, though it says green."""
    image = Image.new("RGBA", SIZE, (200, 0, 0, 128))
    ImageDraw.Draw(image).rectangle((0, 6, 16, 12), (0, 200, 0, 0))
    return image


def palette_with_hole():
    image = Image.new("P", SIZE, 0)
    image.putpalette([10, 20, 30, 200, 100, 0])
    ImageDraw.Draw(image).rectangle((0, 6, 16, 12), 1)
    return image


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


GREY_NOISE = Image.fromarray(NOISE[..., 0])
COLOUR_NOISE = Image.fromarray(NOISE)
CASES = {
    # what is saved, how, and what it should become: [H, W] or [H, W, 3]
    "16 bits PNG": (Image.fromarray(TWELVE), "PNG", {}, own_window(TWELVE)),
    "16 bits TIFF": (Image.fromarray(TWELVE), "TIFF", {}, own_window(TWELVE)),
    "32 bits TIFF": (
        Image.fromarray(TWELVE.astype(np.int32) * -9),
        "TIFF",
        {},
        own_window(TWELVE.astype(np.int32) * -9),
    ),
    "16 bits PGM": (Image.fromarray(TWELVE), "PPM", {}, own_window(TWELVE)),
    "floats from 0 to 1": (Image.fromarray(FLOATS), "TIFF", {}, np.rint(FLOATS * 255.0)),
    "other floats": (Image.fromarray(FLOATS * 900 - 7), "TIFF", {}, own_window(FLOATS * 900 - 7)),
    "one shade": (Image.new("I;16", SIZE, 999), "PNG", {}, np.zeros((12, 16))),
    "grey": (GREY_NOISE, "PNG", {}, NOISE[..., 0]),
    "two shades": (
        GREY_NOISE.point(lambda v: 255 * (v > 99)).convert("1"),
        "PNG",
        {},
        255 * (NOISE[..., 0] > 99),
    ),
    "a hole": (
        with_hole(),
        "PNG",
        {},
        np.repeat([[[227, 127, 127]], [[255, 255, 255]]], 6, axis=0).repeat(16, axis=1),
    ),
    "a grey hole": (
        Image.merge("LA", [Image.new("L", SIZE, 0), GREY_NOISE]),
        "PNG",
        {},
        255 - NOISE[..., 0],
    ),
    "a hole in a palette": (
        palette_with_hole(),
        "PNG",
        {"transparency": 0},
        np.repeat([[[255, 255, 255]], [[200, 100, 0]]], 6, axis=0).repeat(16, axis=1),
    ),
    "one colour is a hole": (
        Image.new("RGB", SIZE, (1, 2, 3)),
        "PNG",
        {"transparency": (1, 2, 3)},
        np.full((12, 16, 3), 255),
    ),
    "a palette": (
        palette_with_hole(),
        "GIF",
        {},
        np.repeat([[[10, 20, 30]], [[200, 100, 0]]], 6, axis=0).repeat(16, axis=1),
    ),
    "inks": (
        COLOUR_NOISE.convert("CMYK"),
        "TIFF",
        {},
        np.asarray(COLOUR_NOISE.convert("CMYK").convert("RGB")),
    ),
    "turned": (
        COLOUR_NOISE.transpose(Image.Transpose.ROTATE_90),
        "PNG",
        {"exif": turned()},
        NOISE,
    ),
    "turned, of 16 bits": (
        Image.fromarray(np.ascontiguousarray(np.rot90(TWELVE))),
        "TIFF",
        {"exif": turned()},
        own_window(TWELVE),
    ),
}


@pytest.mark.parametrize(("image", "form", "options", "expected"), CASES.values(), ids=CASES)
def test_one_picture_is_the_same_at_every_door(image, form, options, expected, tmp_path):
    expected = np.asarray(expected)
    channels = 1 if expected.ndim == 2 else 3
    expected = expected.reshape(12, 16, -1).transpose(2, 0, 1)
    content, shape = packed(image, form, **options), (channels, 12, 16)
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "1.png").write_bytes(content)
    path = tmp_path / "cat" / "1.png"
    learned = load_folder(tmp_path)
    assert learned.shape == shape
    doors = {
        "to learn from": learned.x[0],
        "fedpn predict": read_inputs(path, shape).rows[0],
        "a path": _picture(str(path), shape),
        "bytes": _picture(content, shape),
        "Pillow": _picture(Image.open(io.BytesIO(content)), shape),
        "HTTP": decode([content], shape, ()).rows[0],
    }
    for name, found in doors.items():
        assert found.dtype == np.uint8
        np.testing.assert_allclose(found, expected, rtol=0, atol=0, err_msg=name)


def test_what_pictures_are_among_changes_nothing(tmp_path):
    """Each has its own window, so that a picture is answered as it was learned from."""
    for name, values in {"cat/1.png": TWELVE, "dog/1.png": TWELVE * 16}.items():
        (tmp_path / name).parent.mkdir()
        Image.fromarray(values).save(tmp_path / name)
    cat, dog = load_folder(tmp_path).x
    np.testing.assert_array_equal(cat, dog)
    np.testing.assert_array_equal(read_inputs(tmp_path / "cat", (1, 12, 16)).rows[0], cat)


def test_few_bright_points_on_black_are_seen():
    """Where fewer than 0.5 % of pixels differ, the darkest and the brightest make the window."""
    stars = np.zeros((40, 40), np.uint16)
    stars[3, 4], stars[5, 6] = 1000, 500
    found = from_pillow(Image.fromarray(stars), "stars", (1, 40, 40))[0]
    assert (found[3, 4], found[5, 6], found.sum()) == (255, 128, 255 + 128)


def test_what_was_done_is_said(tmp_path):
    pictures = {
        "cat/1.tif": Image.fromarray(FLOATS),
        "cat/2.png": Image.fromarray(TWELVE),
        "dog/1.png": with_hole(),
        "dog/2.png": with_hole(),
        "dog/3.png": Image.new("RGBA", SIZE, (1, 2, 3, 255)),
    }
    for name, image in pictures.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image.save(tmp_path / name)
    told = (
        "1 of 5 images hold floats from 0 to 1, which became bytes from 0 to 255",
        "1 of 5 images have more than 8 bits: in each by itself the darkest 0.5 % of its pixels "
        "became 0, the brightest 0.5 % 255",
        "2 of 5 images are transparent in parts and were laid on white",
    )
    assert load_folder(tmp_path).remarks == ("2 grey images of 5 were brought to colour", *told)
    assert read_inputs(tmp_path, (3, 6, 8)).remark == "; ".join(
        ("5 images of 16×12 were brought to 8×6", *told)
    )


def test_colours_of_16_bits_keep_their_upper_8():
    """A PNG by hand, since Pillow writes none."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))

    values = RNG.integers(0, 2**16, (12, 16, 3)).astype(">u2")
    head = struct.pack(">IIBBBBB", *SIZE, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", compress(rows))
    found = from_bytes(content + chunk(b"IEND", b""), "a", (3, 12, 16))
    np.testing.assert_array_equal(found, (values >> 8).transpose(2, 0, 1))


def test_a_tall_picture_is_laid_on_white_to_its_end():
    values = RNG.integers(0, 256, (700, 8, 4), dtype=np.uint8)
    sheet = Image.new("RGBA", (8, 700), "white")
    sheet.alpha_composite(Image.fromarray(values))
    found = from_pillow(Image.fromarray(values), "a", (3, 700, 8)).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, np.asarray(sheet)[..., :3])


@pytest.mark.parametrize("form", ["GIF", "TIFF"])
def test_of_several_pictures_in_a_file_the_first_is_read(form):
    others = [Image.new("L", SIZE, 200)]
    content = packed(Image.new("L", SIZE, 9), form, save_all=True, append_images=others)
    assert np.unique(from_bytes(content, "a", (1, 12, 16))).tolist() == [9]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_no_numbers_are_refused(bad):
    values = FLOATS.copy()
    values[3, 4] = bad
    with pytest.raises(UserError, match="input 0 holds a pixel that is missing or infinite"):
        from_bytes(packed(Image.fromarray(values), "TIFF"), "input 0", (1, 12, 16))


def test_floats_as_large_as_there_are():
    values = np.array([[-3e38, 0, 3e38]], np.float32).repeat(3, axis=0)
    found = from_pillow(Image.fromarray(values), "a", (1, 3, 3))[0]
    assert found[0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("mode", ["LAB", "HSV"])
def test_other_modes_are_refused(mode):
    with pytest.raises(UserError, match=f"a is a picture of the mode {mode!r}; save it in grey"):
        from_pillow(Image.new(mode, SIZE), "a", (1, 12, 16))


def test_a_picture_of_pillows_that_is_too_large_or_damaged():
    with pytest.raises(UserError, match="a has 9000×9000 pixels and at most 64 million"):
        from_pillow(Image.new("1", (9000, 9000)), "a", (1, 12, 16))
    cut = Image.open(io.BytesIO(packed(COLOUR_NOISE, "PNG")[:-60]))
    with pytest.raises(UserError, match="a is a damaged picture"):
        from_pillow(cut, "a", (3, 12, 16))
