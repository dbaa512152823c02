"""Pictures of one size and one form."""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources.guard import fits, plain_file, reason

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

GREY, COLOUR = "L", "RGB"
MODES = {
    "1": GREY,
    "L": GREY,
    "LA": GREY,
    "P": COLOUR,
    "PA": COLOUR,
    "RGB": COLOUR,
    "RGBA": COLOUR,
    "CMYK": COLOUR,
    "YCbCr": COLOUR,
}
TURNED = (5, 6, 7, 8)  # the values of EXIF's orientation that swap height and width
ORIENTATION = 0x0112
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
PIXELS = 64_000_000
PHOTOGRAPHS = {"JPEG", "MPO", "TIFF", "WEBP"}  # others would be decoded whole to learn of it


class Look(NamedTuple):
    """What a file's head tells."""

    width: int
    height: int
    mode: str


def look(path: Path) -> Look:
    """Reads the head of a picture, and refuses what is none."""
    with _opened(path) as image:
        width, height = image.size
        turned = image.format in PHOTOGRAPHS and image.getexif().get(ORIENTATION) in TURNED
        mode = image.mode
    if mode not in MODES:
        raise UserError(
            f"{path} is a picture of the mode {mode!r}; save it with 8 bits a channel, "
            "in grey or in colour"
        )
    return Look(height, width, MODES[mode]) if turned else Look(width, height, MODES[mode])


def read(paths: Sequence[Path], mode: str, size: tuple[int, int]) -> Array:
    """Reads pictures into one array, turned upright and brought to one form: [N, C, H, W]."""
    width, height = size
    shape = (len(paths), {GREY: 1, COLOUR: 3}[mode], height, width)
    images = _room(shape)
    for i, path in enumerate(paths):
        pixels = _read(path, mode, size)
        images[i] = pixels.reshape(height, width, -1).transpose(2, 0, 1)
    return images


def from_bytes(content: bytes, what: str, shape: Sequence[int]) -> Array:
    """A picture that is not in a file, as a model takes it: [C, H, W]."""
    channels, height, width = shape
    mode = GREY if channels == 1 else COLOUR
    pixels = _read(io.BytesIO(content), mode, (width, height), what)
    return pixels.reshape(height, width, -1).transpose(2, 0, 1)


def _read(
    path: Path | io.BytesIO, mode: str, size: tuple[int, int], what: str | None = None
) -> Array:
    from PIL import Image, ImageOps

    with _opened(path, what) as file:
        upright = ImageOps.exif_transpose(file) if file.format in PHOTOGRAPHS else file
        image = upright.convert(mode)
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)  # averages where it shrinks
    return np.asarray(image)


@contextmanager
def _opened(path: Path | io.BytesIO, name: str | None = None) -> Iterator["ImageFile"]:
    """Opens a picture of a known format and a sane size, of which the head alone was read."""
    from PIL import Image

    what = name or str(path)
    if isinstance(path, Path):
        plain_file(path)
    opened = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd heads of whole pictures, of transparency
            # Left to itself, Pillow hands a file that begins like PostScript to Ghostscript.
            with Image.open(path, formats=FORMATS) as image:
                opened = True
                _refuse_bombs(what, *image.size)
                yield image
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise UserError(f"{what} has too many pixels ({error}); make it smaller") from error
    except Exception as error:  # decoders of damaged files fail in many ways
        if opened:
            raise UserError(
                f"{what} is a damaged picture ({reason(error)}); take it away"
            ) from error
        raise UserError(
            f"{what} is not a picture that can be read ({', '.join(FORMATS)}); take it away"
        ) from error


def _refuse_bombs(what: str, width: int, height: int) -> None:
    if width * height > PIXELS:
        raise UserError(
            f"{what} has {width}×{height} pixels and at most {PIXELS // 10**6} million are read; "
            "make it smaller"
        )


def _room(shape: tuple[int, int, int, int]) -> Array:
    count, _, height, width = shape
    fits(
        math.prod(shape),
        f"{count} images of {width}×{height}",
        "--set data.image_size=… names a smaller size",
    )
    return np.empty(shape, np.uint8)


def resize(images: Array, size: tuple[int, int]) -> Array:
    """Brings [N, C, H, W] to another width and height.

    >>> resize(np.full((2, 3, 8, 6), 7, np.uint8), (16, 12)).shape
    (2, 3, 12, 16)
    """
    from PIL import Image

    width, height = size
    if images.shape[2:] == (height, width):
        return images
    resized = _room((*images.shape[:2], height, width))
    for i, image in enumerate(images):
        for c, channel in enumerate(image):
            picture = Image.fromarray(channel).resize(size, Image.Resampling.BILINEAR)
            resized[i, c] = np.asarray(picture)
    return resized
