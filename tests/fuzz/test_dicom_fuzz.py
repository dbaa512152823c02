"""DICOM files: read, or refused in a sentence that quotes nothing of them."""

import io
import struct

import numpy as np
import pydicom
import pytest
from absurd import numbers, texts
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from PIL import Image
from pydicom.datadict import dictionary_VR
from pydicom.encaps import encapsulate
from pydicom.tag import Tag
from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian, JPEG2000Lossless, RLELossless
from trial import fuzz, reads

from dicoms import PATIENT, RAMP, dataset, saved
from fedpn.core.errors import UserError
from fedpn.data.sources.picture import from_bytes, look, read
from fedpn.serving.inputs import read_inputs

WINDOW = {"WindowCenter": 600, "WindowWidth": 800, "RescaleSlope": 2, "RescaleIntercept": -5}
COLOURS = np.arange(12 * 9 * 3, dtype=np.uint8).reshape(9, 12, 3)


def table():
    item = pydicom.Dataset()
    item.LUTDescriptor, item.LUTData = [4, 100, 16], [0, 65535, 257, 514]
    item["LUTData"].VR = "US"
    return dataset(VOILUTSequence=[item])


def palette():
    inks = {f"{ink}PaletteColorLookupTable" for ink in ("Red", "Green", "Blue")}
    tags = {f"{ink}Descriptor": [256, 0, 8] for ink in inks}
    tags |= {f"{ink}Data": bytes(range(256)) for ink in inks}
    return dataset(RAMP.astype(np.uint8), photometric="PALETTE COLOR", **tags)


def packed(syntax):
    made = dataset(COLOURS, photometric="RGB")
    if syntax == RLELossless:
        made.compress(RLELossless)
        return made
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "JPEG2000")
    made.file_meta.TransferSyntaxUID = syntax
    made.PixelData = encapsulate([file.getvalue()])
    made["PixelData"].is_undefined_length = True
    return made


WHOLE = {
    "window": dataset(**WINDOW),
    "inverted": dataset(photometric="MONOCHROME1", syntax=ImplicitVRLittleEndian, **WINDOW),
    "big": dataset(syntax=ExplicitVRBigEndian),
    "colours": dataset(COLOURS, photometric="YBR_FULL"),
    "table": table(),
    "palette": palette(),
    "runs": packed(RLELossless),
    "waves": packed(JPEG2000Lossless),
}
CONTENT = {name: saved(made) for name, made in WHOLE.items()}
SHORT = ["SamplesPerPixel", "PlanarConfiguration", "Rows", "Columns", "BitsAllocated", "BitsStored"]
SHORT += ["HighBit", "PixelRepresentation"]
WORDS = ["PhotometricInterpretation", "VOILUTFunction", "NumberOfFrames", "WindowCenter"]
WORDS += ["WindowWidth", "RescaleSlope", "RescaleIntercept"]
# A sequence, and the first of its items; both end where they will.
NESTED = b"\x08\0\x40\x11SQ\0\0" + b"\xff" * 4 + b"\xfe\xff\0\xe0" + b"\xff" * 4


def at_every_door(path, content):
    path.write_bytes(content)
    if reads(lambda: look(path), path.name):
        reads(lambda: read([path], "RGB", (8, 8)), path.name)
    reads(lambda: read_inputs(path, (1, 8, 8)), path.name)
    try:
        from_bytes(content, "input 0", (3, 4, 5))
    except UserError as error:
        assert str(error).startswith("input 0 ")
        assert PATIENT[:4] not in str(error)


@pytest.mark.parametrize("kind", CONTENT)
@fuzz(examples=80)
@given(data=st.data())
def test_files_with_damage(kind, data, tmp_path):
    content = data.draw(mutated(CONTENT[kind]))
    at_every_door(tmp_path / "bad.dcm", content)


def element(name, value):
    """A tag as files of explicit types have it."""
    tag, kind = Tag(name), dictionary_VR(name)
    value += b" " * (len(value) % 2)
    return struct.pack("<HH2sH", tag.group, tag.element, kind.encode(), len(value)) + value


def elements():
    """Tags that say things which nobody means."""
    short = st.integers(0, 2**16 - 1).map(lambda number: struct.pack("<H", number))
    words = st.one_of(numbers().map(str), texts()).map(lambda text: text.encode()[:300])
    small = st.builds(element, st.sampled_from(SHORT), st.one_of(short, st.binary(max_size=9)))
    return st.one_of(small, st.builds(element, st.sampled_from(WORDS), words))


@pytest.mark.parametrize("kind", [kind for kind in CONTENT if kind not in ("inverted", "big")])
@fuzz(examples=80)
@given(data=st.data())
def test_heads_that_say_absurd_things(kind, data, tmp_path):
    """The file is whole, and tags that come later go over those that came before."""
    said = data.draw(st.lists(elements(), min_size=1, max_size=3))
    content = CONTENT[kind]
    place = content.rindex(b"\xe0\x7f\x10\0O")  # the tag of pixels
    at_every_door(tmp_path / "bad.dcm", content[:place] + b"".join(said) + content[place:])


@fuzz(examples=60)
@given(body=st.binary(max_size=200), start=st.binary(min_size=128, max_size=128))
@example(body=b"", start=bytes(128))
@example(
    body=(b"\x08\0\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\xff\xff\xff\xff" * 3000), start=b""
)
def test_any_bytes_after_the_mark(body, start, tmp_path):
    head = CONTENT["window"][: CONTENT["window"].index(b"\x08\0\x16\0")]
    at_every_door(tmp_path / "bad.dcm", start.ljust(128, b"\0") + b"DICM" + body)
    at_every_door(tmp_path / "bad.dcm", head + body)


@pytest.mark.parametrize("kind", CONTENT)
def test_whole_files_are_read(kind, tmp_path):
    path = tmp_path / "good"
    path.write_bytes(CONTENT[kind])
    assert reads(lambda: look(path))
    assert reads(lambda: read_inputs(path, (1, 8, 8)))
