"""DICOM: held against pydicom's own windows, tables and colours."""

import builtins
import io

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_windowing
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

from dicoms import PATIENT, RAMP, dataset, file, saved
from fedpn.core.errors import UserError
from fedpn.data.sources.folder import load_folder
from fedpn.data.sources.picture import from_bytes, look
from fedpn.serving.inputs import read_inputs

GREY, COLOUR = (1, 12, 16), (3, 12, 16)
SCAN = RAMP.astype(np.int16) - 1024


def grey(content, shape=GREY):
    return from_bytes(content, "a.dcm", shape)[0]


def by_pydicom(made):
    """pydicom's window, from its own range to 0 to 255, not yet rounded."""
    values = apply_modality_lut(made.pixel_array, made)
    with np.errstate(over="ignore"):
        shown = apply_windowing(values, made)
    slope, intercept = made.get("RescaleSlope", 1), made.get("RescaleIntercept", 0)
    bits = made.BitsStored
    first = -(2 ** (bits - 1)) if made.PixelRepresentation else 0
    low, high = (v * slope + intercept for v in (first, first + 2**bits - 1))
    return (shown - low) / (high - low) * 255


@pytest.mark.parametrize("curve", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("window", [(600, 800), (2000, 1), ([600, 50], [800, 9]), (-300.5, 4000)])
@pytest.mark.parametrize("pixels", [RAMP, SCAN], ids=["unsigned", "signed"])
@pytest.mark.parametrize("rescale", [{}, {"RescaleSlope": 0.5, "RescaleIntercept": -100}])
def test_windows_are_pydicoms(curve, window, pixels, rescale):
    tags = {"WindowCenter": window[0], "WindowWidth": window[1], **rescale}
    made = dataset(pixels, **tags | ({"VOILUTFunction": curve} if curve else {}))
    np.testing.assert_allclose(grey(saved(made)), by_pydicom(made), rtol=0, atol=0.5 + 1e-9)


def test_a_tall_scan_is_windowed_to_its_end():
    pixels = np.arange(700 * 3, dtype=np.uint16).reshape(700, 3)
    made = dataset(pixels, WindowCenter=1000, WindowWidth=2000)
    found = grey(saved(made), (1, 700, 3))
    np.testing.assert_allclose(found, by_pydicom(made), rtol=0, atol=0.5 + 1e-9)


def test_a_window_by_hand():
    pixels = np.array([[0, 100, 150, 200, 400]], np.uint16)
    made = file(pixels, WindowCenter=150, WindowWidth=100, VOILUTFunction="LINEAR_EXACT")
    assert grey(made, (1, 1, 5)).tolist() == [[0, 0, 128, 255, 255]]


def test_where_low_means_bright_shades_are_turned_round():
    tags = {"WindowCenter": 600, "WindowWidth": 800}
    usual = grey(file(**tags))
    turned = grey(file(photometric="MONOCHROME1", **tags))
    np.testing.assert_array_equal(turned, 255 - usual)


@pytest.mark.parametrize(("bits", "step"), [(16, 257), (12, 4095 / 255)])
def test_a_table_of_shades(bits, step):
    item = Dataset()
    item.LUTDescriptor = [4, 100, bits]
    item.LUTData = [round(shade * step) for shade in (0, 255, 1, 2)]
    item["LUTData"].VR = "US"
    pixels = np.array([[0, 100, 101, 102, 103, 999]], np.uint16)
    made = file(pixels, VOILUTSequence=[item], WindowCenter=1, WindowWidth=1)
    assert grey(made, (1, 1, 6)).tolist() == [[0, 0, 255, 1, 2, 2]]


def test_without_a_window_each_file_has_its_own():
    low, high = np.percentile(RAMP, [0.5, 99.5])
    expected = np.rint(np.clip((RAMP - low) / (high - low), 0, 1) * 255)
    np.testing.assert_array_equal(grey(file()), expected)
    # Where there is no window, a change of units changes nothing.
    np.testing.assert_array_equal(grey(file(RescaleSlope=2, RescaleIntercept=-9)), expected)


@pytest.mark.parametrize("tags", [{}, {"RescaleSlope": 1, "RescaleIntercept": 0}])
def test_bytes_stay_as_they_are(tags):
    pixels = RAMP.astype(np.uint8) // 3
    np.testing.assert_array_equal(grey(file(pixels, **tags)), pixels)


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRBigEndian, RLELossless])
def test_ways_to_store_the_same(syntax):
    tags = {"WindowCenter": 600, "WindowWidth": 800}
    made = dataset(**tags) if syntax == RLELossless else dataset(syntax=syntax, **tags)
    if syntax == RLELossless:
        made.compress(RLELossless)
    np.testing.assert_array_equal(grey(saved(made)), grey(file(**tags)))


def encapsulated(form, size, syntax, **tags):
    """Pixels as a picture of a known format."""
    from pydicom.encaps import encapsulate

    packed = io.BytesIO()
    shade = np.linspace(0, 255, size[0] * size[1]).reshape(size[::-1]).astype(np.uint8)
    Image.fromarray(shade).save(packed, form, **tags)
    made = dataset(np.zeros((12, 16), np.uint8), syntax)
    made.PixelData = encapsulate([packed.getvalue()])
    made["PixelData"].VR, made["PixelData"].is_undefined_length = "OB", True
    return saved(made), packed


def test_jpeg_within():
    content, packed = encapsulated("JPEG", (16, 12), JPEGBaseline8Bit, quality=95)
    np.testing.assert_array_equal(grey(content), np.asarray(Image.open(packed)))
    content, packed = encapsulated("JPEG2000", (16, 12), JPEG2000Lossless, irreversible=False)
    np.testing.assert_array_equal(grey(content), np.asarray(Image.open(packed)))


def test_colours():
    pixels = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    content = file(pixels, photometric="RGB")
    np.testing.assert_array_equal(from_bytes(content, "a", COLOUR), pixels.transpose(2, 0, 1))
    made = dataset(pixels, photometric="YBR_FULL")
    expected = np.asarray(Image.fromarray(pixels, "YCbCr").convert("RGB")).astype(int)
    found = from_bytes(saved(made), "a", COLOUR).transpose(1, 2, 0)
    assert np.abs(found - expected).max() <= 2  # Pillow and pydicom round otherwise


def test_a_palette():
    tags = {}
    rng = np.random.default_rng(0)
    for name in ("Red", "Green", "Blue"):
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        table = rng.integers(0, 2**16, 256, dtype=np.uint16)
        tags[f"{name}PaletteColorLookupTableData"] = table.tobytes()
    made = dataset(RAMP.astype(np.uint8), photometric="PALETTE COLOR", **tags)
    expected = apply_color_lut(made.pixel_array, made) >> 8
    found = from_bytes(saved(made), "a", COLOUR).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, expected)


def test_folders_of_dicom_to_learn_from_and_to_be_answered(tmp_path):
    tags = {"WindowCenter": 600, "WindowWidth": 800}
    contents = {"ill/1.dcm": file(**tags), "ill/2": file(), "well/1.2.840.7": file(SCAN, **tags)}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    learned = load_folder(tmp_path)
    assert learned.shape == GREY
    assert learned.remarks == (
        "2 of 3 images are DICOM and were seen through the window that their files name",
        "1 of 3 images have more than 8 bits: in each by itself the darkest 0.5 % of its pixels "
        "became 0, the brightest 0.5 % 255",
    )
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")  # lists the others
    asked = read_inputs(tmp_path, GREY)
    assert asked.names == list(contents)
    np.testing.assert_array_equal(asked.rows, learned.x)
    np.testing.assert_array_equal(read_inputs(tmp_path / "ill" / "2", GREY).rows, learned.x[1:2])
    for row, content in zip(learned.x, contents.values(), strict=True):
        np.testing.assert_array_equal(from_bytes(content, "a", GREY), row)


BAD = {
    "frames": (lambda: file(NumberOfFrames=30), "DICOM of 30 frames; save the one that matters"),
    "no picture": (lambda: _without("Rows"), "is DICOM without a picture"),
    "no pixels": (lambda: _without("PixelData"), "damaged DICOM file"),
    "bomb": (lambda: file(Rows=60000, Columns=60000), "60000×60000 pixels and at most 64 million"),
    "fewer pixels": (lambda: file(Rows=900), "damaged DICOM file"),
    "no rows": (lambda: file(Rows=0), "damaged DICOM file"),
    "colours": (lambda: file(photometric="HSV"), "neither grey, RGB, YBR nor of a palette"),
    "window": (lambda: file(WindowCenter=1, WindowWidth=-5), "damaged DICOM file"),
    "curve": (lambda: file(WindowCenter=1, WindowWidth=5, VOILUTFunction="X"), "damaged DICOM"),
    "mark alone": (lambda: bytes(128) + b"DICM", r"packed in a way that is not read \(unknown\)"),
    "lossless": (
        lambda: encapsulated("JPEG", (16, 12), JPEGLosslessSV1)[0],
        "not read .JPEG Lossless",
    ),
    "deflated": (lambda: file(syntax=DeflatedExplicitVRLittleEndian), "not read .Deflated"),
    "disguise": (
        lambda: encapsulated("JPEG", (3000, 3000), JPEGBaseline8Bit)[0],
        "whose pixels are more than its head says",
    ),
    "cut": (lambda: file()[:-100], "damaged DICOM file"),
}


def _without(name):
    made = dataset()
    delattr(made, name)
    return saved(made)


@pytest.mark.parametrize(("make", "words"), BAD.values(), ids=BAD)
def test_what_is_not_read_is_refused_and_nothing_of_it_is_quoted(make, words):
    with pytest.raises(UserError, match=words) as caught:
        from_bytes(make(), "a.dcm", GREY)
    told = str(caught.value)
    assert told.startswith("a.dcm ")
    assert PATIENT not in told
    assert caught.value.__cause__ is None


def test_heads_that_promise_too_much_are_refused_before_pixels_are_read(tmp_path):
    path = tmp_path / "a.dcm"
    path.write_bytes(file(Rows=60000, Columns=60000))
    with pytest.raises(UserError, match="60000×60000 pixels"):
        look(path)


def test_names_where_numbers_should_be_are_not_quoted():
    content = file(WindowCenter="1234567", WindowWidth="12").replace(b"1234567 ", b"Doe^Jane")
    assert content.count(b"Doe^Jane") == 2
    with pytest.raises(UserError, match="damaged") as caught:
        from_bytes(content, "a.dcm", GREY)
    assert "Doe" not in str(caught.value)


def test_without_pydicom_one_is_told_what_to_install(monkeypatch):
    content, real = file(), builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("pydicom"):
            raise ModuleNotFoundError(name, name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        UserError, match=r"a\.dcm is DICOM, which needs pydicom.*: pip install 'fedpn\[dicom"
    ):
        from_bytes(content, "a.dcm", GREY)
