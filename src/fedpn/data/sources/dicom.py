"""DICOM files: one frame of them as a picture, seen through the window that they name.

Of the tags only those that tell of the picture are read, and no message quotes what a file says:
names of patients stay in it.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.extras import needed
from fedpn.data.dataset import Array
from fedpn.data.sources import shades
from fedpn.data.sources.guard import few_pixels
from fedpn.data.sources.shades import COLOUR, GREY, Look, Plain

MARK, PLACE = b"DICM", 128
INDEX = "dicomdir"  # a list of the files beside it, which begins as they do
META, PIXELS = 0x0002, 0x7FE00000  # the group of what is said first, and the first tag of pixels
INKS = ("Red", "Green", "Blue")
TAGS = (
    *("SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames"),
    *("Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation"),
    *("RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("VOILUTSequence", "VOILUTFunction", "WindowCenter", "WindowWidth"),
    *(f"{ink}PaletteColorLookupTable{part}" for ink in INKS for part in ("Descriptor", "Data")),
    *("FloatPixelData", "DoubleFloatPixelData", "PixelData"),
)
PLAIN = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2")
RLE = "1.2.840.10008.1.2.5"
JPEG = tuple(f"1.2.840.10008.1.2.4.{n}" for n in (50, 51, 90, 91))  # what Pillow decodes
INVERTED = "MONOCHROME1"
FORMS = {
    **dict.fromkeys((INVERTED, "MONOCHROME2"), GREY),
    **dict.fromkeys(("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT"), COLOUR),
    "PALETTE COLOR": COLOUR,
}

WINDOWED = "are DICOM and were seen through the window that their files name"


def is_dicom(stream: BinaryIO) -> bool:
    """Whether a file begins as DICOM does; the stream is then where it began."""
    start = stream.read(PLACE + len(MARK))
    stream.seek(0)
    return start[PLACE:] == MARK


def look(stream: BinaryIO, what: str) -> Look:
    """Reads a head, and refuses what would not be read."""
    with _taught(what):
        return _checked(_read(stream, what, PIXELS), what)


def plain(stream: BinaryIO, what: str) -> Plain:
    """The picture in 8 bits, grey or in colour."""
    from PIL import Image

    with _taught(what):
        found = _read(stream, what)
        head = _checked(found, what)
        _refuse_disguise(found, what, head)
        values = _decoded(found)
        if head.mode == COLOUR:
            return Plain(Image.fromarray(_colours(values, found)))
        pixels, how = _shades(values, found, what)
        if found.PhotometricInterpretation == INVERTED:
            pixels = 255 - pixels
        return Plain(Image.fromarray(pixels), how)


def _read(stream: BinaryIO, what: str, until: int | None = None) -> Any:
    """The tags that tell of the picture, up to one; never unpacked, as pydicom.dcmread would."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.filereader import read_dataset
    from pydicom.tag import Tag
    from pydicom.uid import UID

    stream.seek(PLACE + len(MARK))
    meta = read_dataset(stream, False, True, stop_when=lambda tag, *_: tag.group != META)
    syntax = str(meta.get("TransferSyntaxUID", ""))
    if syntax not in (*PLAIN, RLE, *JPEG):
        raise UserError(
            f"{what} is DICOM packed in a way that is not read ({_way(syntax)}); save it without "
            "compression, as gdcmconv --raw and dcmdjpeg do"
        )
    found = read_dataset(
        stream,
        syntax == PLAIN[0],
        syntax != PLAIN[2],
        stop_when=None if until is None else lambda tag, *_: tag >= until,
        specific_tags=[Tag(name) for name in TAGS],
    )
    found.file_meta = FileMetaDataset()
    found.file_meta.TransferSyntaxUID = UID(syntax)
    return found


def _way(syntax: str) -> str:
    """What a transfer syntax is called, if it is one."""
    from pydicom.uid import UID

    uid = UID(syntax)
    return uid.name if uid.type else "unknown"


def _checked(found: Any, what: str) -> Look:
    """Holds what a head says against what is read."""
    if "Rows" not in found or "Columns" not in found:
        raise UserError(f"{what} is DICOM without a picture; take it away")
    kind, width, height = found.PhotometricInterpretation, found.Columns, found.Rows
    frames = int(found.get("NumberOfFrames") or 1)
    if frames > 1:
        raise UserError(
            f"{what} is DICOM of {frames} frames; save the one that matters as a file of its own"
        )
    if kind not in FORMS:
        raise UserError(
            f"{what} is DICOM whose colours are neither grey, RGB, YBR nor of a palette; "
            "save it as one of them"
        )
    if min(width, height) < 1:
        raise ValueError("no pixels")
    few_pixels(what, width, height)
    return Look(width, height, FORMS[kind])


def _refuse_disguise(found: Any, what: str, head: Look) -> None:
    """Refuses packed pixels that would unpack to more than the head says."""
    from PIL import Image
    from pydicom.encaps import generate_frames

    syntax = found.file_meta.TransferSyntaxUID
    if syntax in PLAIN:
        return
    frame = next(generate_frames(found.PixelData, number_of_frames=1))
    promised = head.width * head.height * found.SamplesPerPixel * found.BitsAllocated // 8
    if syntax == RLE:
        is_honest = len(frame) <= 2 * promised + 64 * 16
    else:
        with Image.open(io.BytesIO(frame), formats=("JPEG", "JPEG2000")) as image:
            is_honest = image.size == (head.width, head.height)
    if not is_honest:
        raise UserError(f"{what} is DICOM whose pixels are more than its head says; take it away")


def _decoded(found: Any) -> Array:
    """Numbers as they are stored, [H, W] or [H, W, 3], YBR as RGB."""
    from pydicom.pixels.decoders.base import get_decoder

    decode = get_decoder(found.file_meta.TransferSyntaxUID)
    return np.asarray(decode.as_array(found, index=0)[0])


def _colours(values: Array, found: Any) -> Array:
    """Colours keep their upper 8 bits."""
    from pydicom.pixels.processing import apply_color_lut

    bits = found.BitsStored
    if "RedPaletteColorLookupTableDescriptor" in found:
        bits = int(found.RedPaletteColorLookupTableDescriptor[2])
        values = apply_color_lut(values, found)
    if values.ndim != 3 or values.shape[2] != 3 or not 8 <= bits <= 16:
        raise ValueError("no colours")
    return np.asarray(values >> (bits - 8), np.uint8)


def _shades(values: Array, found: Any, what: str) -> tuple[Array, str]:
    """Grey as bytes: by the file's table or window, else as it is where it has 8 bits."""
    from pydicom.pixels.processing import apply_modality_lut

    if values.ndim != 2:
        raise ValueError("no shades")
    show = _window(found)
    if show:
        strips = (values[i : i + shades.ROWS] for i in range(0, len(values), shades.ROWS))
        shown = [show(apply_modality_lut(strip, found)) for strip in strips]
        return np.concatenate(shown), WINDOWED
    seen = apply_modality_lut(values, found)
    if values.dtype == np.uint8 and found.BitsStored == 8 and np.array_equal(seen, values):
        return values, ""
    return shades.shades(seen, what)


def _window(found: Any) -> Callable[[Array], Array] | None:
    """What the file says of how to see it: a table, or else a window."""
    from pydicom.pixels.processing import apply_voi

    if found.get("VOILUTSequence"):
        brightest = 2 ** int(found.VOILUTSequence[0].LUTDescriptor[2]) - 1
        return lambda values: shades.window(apply_voi(values, found), 0, brightest)
    centre, width = _first(found.get("WindowCenter")), _first(found.get("WindowWidth"))
    if centre is None or width is None:
        return None
    curve = found.get("VOILUTFunction") or "LINEAR"
    return lambda values: _windowed(values, centre, width, curve)


def _first(values: Any) -> float | None:
    """The first of several windows; a file may name none."""
    from pydicom.multival import MultiValue

    if values is None or values == "":
        return None
    return float(values[0] if isinstance(values, MultiValue) else values)


def _windowed(values: Array, centre: float, width: float, curve: str) -> Array:
    """A window of the standard's (PS3.3, C.11.2.1): linear, exactly linear, or a sigmoid."""
    least = 1 if curve == "LINEAR" else np.finfo(np.float32).tiny
    if not (np.isfinite(centre) and least <= width < np.inf):
        raise ValueError("no window")
    if curve == "SIGMOID":
        steep = np.clip(-4 * (values.astype(np.float64) - centre) / width, -700, 700)
        return shades.window(1 / (1 + np.exp(steep)), 0, 1)
    if curve == "LINEAR":  # its ends are the centres of pixels
        centre, width = centre - 0.5, width - 1
    elif curve != "LINEAR_EXACT":
        raise ValueError("no curve")
    return shades.window(values, centre - width / 2, centre + width / 2)


@contextmanager
def _taught(what: str) -> Iterator[None]:
    """Turns what damaged files raise into a sentence, which quotes nothing of them."""
    with needed(f"{what} is DICOM, which"):
        from pydicom.config import logger
    is_silent, logger.disabled = logger.disabled, True  # it would quote what it doubts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise UserError(f"{what} is a damaged DICOM file ({kind}); take it away") from None
    finally:
        logger.disabled = is_silent
