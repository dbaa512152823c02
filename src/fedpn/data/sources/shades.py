"""Pictures of any mode -> 8 bits, grey or in colour: the one place that decides how."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array

if TYPE_CHECKING:
    from PIL.Image import Image

GREY, COLOUR = "L", "RGB"
DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")  # numbers of more than 8 bits
MODES = {
    **dict.fromkeys(("1", "L", "LA", *DEEP), GREY),
    **dict.fromkeys(("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"), COLOUR),
}
TURNED = (5, 6, 7, 8)  # the values of EXIF's orientation that swap height and width
WIDTH, HEIGHT, ORIENTATION = 0x0100, 0x0101, 0x0112
PHOTOGRAPHS = {"JPEG", "MPO", "TIFF", "WEBP"}  # others would be decoded whole to learn of it
OUTSIDE = 0.5  # per cent of the pixels on either side of a picture's own window
ROWS = 256  # of a picture, that are in a larger form at once

SHARES = "hold floats from 0 to 1, which became bytes from 0 to 255"
STRETCHED = (
    f"have more than 8 bits: in each by itself the darkest {OUTSIDE} % of its pixels became 0, "
    f"the brightest {OUTSIDE} % 255"
)
ON_WHITE = "are transparent in parts and were laid on white"


class Look(NamedTuple):
    """What a file's head tells: width and height once it stands upright, GREY or COLOUR."""

    width: int
    height: int
    mode: str


class Plain(NamedTuple):
    """A picture of the mode GREY or COLOUR, and what it took, as a remark would go on."""

    image: "Image"
    how: str = ""


def form(mode: str, what: str) -> str:
    """What a mode of Pillow's becomes; refuses modes that are neither grey nor colour."""
    if mode not in MODES:
        raise UserError(
            f"{what} is a picture of the mode {mode!r}; save it in grey or in colour (RGB)"
        )
    return MODES[mode]


def is_marked(image: "Image") -> bool:
    """Whether a picture may say, before it is decoded, how it is to be turned."""
    return image.format in PHOTOGRAPHS or "exif" in image.info


def look(image: "Image", what: str) -> Look:
    """What a picture will be, without its being decoded."""
    tags = getattr(image, "tag_v2", {})  # of TIFF, whose size Pillow may have turned already
    width, height = tags.get(WIDTH, image.width), tags.get(HEIGHT, image.height)
    mode = form(image.mode, what)
    turned = is_marked(image) and image.getexif().get(ORIENTATION) in TURNED
    return Look(height, width, mode) if turned else Look(width, height, mode)


def plain(image: "Image", what: str) -> Plain:
    """Turns a picture upright and brings it to 8 bits, whatever it is among."""
    from PIL import Image, ImageOps

    kind = form(image.mode, what)
    upright = ImageOps.exif_transpose(image) if is_marked(image) else image
    if upright.mode in DEEP:
        pixels, how = shades(np.asarray(upright), what)
        return Plain(Image.fromarray(pixels), how)
    return (
        _on_white(upright, kind) if upright.has_transparency_data else Plain(upright.convert(kind))
    )


def _on_white(image: "Image", kind: str) -> Plain:
    """Lays a picture on a white sheet, strip by strip."""
    from PIL import Image

    sheet, is_opaque = Image.new(kind, image.size), True
    for top in range(0, image.height, ROWS):
        strip = image.crop((0, top, image.width, min(top + ROWS, image.height))).convert("RGBA")
        white = Image.new("RGBA", strip.size, "white")
        white.alpha_composite(strip)
        sheet.paste(white.convert(kind), (0, top))
        is_opaque &= strip.getchannel("A").getextrema() == (255, 255)
    return Plain(sheet, "" if is_opaque else ON_WHITE)


def shades(values: Array, what: str) -> tuple[Array, str]:
    """Numbers of any depth -> bytes, by themselves alone, and how.

    >>> shades(np.array([[0.0, 0.5, 1.0]]), "a")[0]
    array([[  0, 128, 255]], dtype=uint8)
    >>> shades(np.array([[0, 1024, 4096]]), "a")[0]
    array([[  0,  64, 255]], dtype=uint8)
    """
    low, high = values.min(), values.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise UserError(f"{what} holds a pixel that is missing or infinite; fill it in")
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        return window(values, 0.0, 1.0), SHARES
    ends = np.percentile(values, (OUTSIDE, 100 - OUTSIDE))
    if ends[0] < ends[1]:
        low, high = ends
    return window(values, float(low), float(high)), STRETCHED


def window(values: Array, low: float, high: float) -> Array:
    """What is at most low becomes 0, what is at least high 255, linear between.

    >>> window(np.array([[-5, 0, 50, 100, 700]]), 0, 100)
    array([[  0,   0, 128, 255, 255]], dtype=uint8)
    """
    if not low < high:
        return np.where(values > low, 255, 0).astype(np.uint8)
    pixels = np.empty(values.shape, np.uint8)
    for start in range(0, len(values), ROWS):
        part = slice(start, start + ROWS)
        # Halves, since the distance of two numbers may be more than a float holds.
        share = (values[part] / 2.0 - low / 2) / (high / 2 - low / 2)
        pixels[part] = np.rint(np.clip(share, 0, 1) * 255)
    return pixels
