"""Pictures of one size and one form."""

import io
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.sources import dicom, shades
from fedpn.data.sources.guard import few_pixels, fits, plain_file, reason
from fedpn.data.sources.shades import COLOUR, GREY, Look, Plain

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
ENDINGS |= {".dcm", ".dicom"}
UNKNOWN = f"is not a picture that can be read ({', '.join(FORMATS)}, DICOM)"
DAMAGED = "is a damaged picture ({})"


class Pictures(NamedTuple):
    """Pictures of one form, and remarks on what it took."""

    images: Array  # uint8 [N, C, H, W]
    remarks: tuple[str, ...]


def is_picture(path: Path) -> bool:
    """A file that ends like a picture, or begins like DICOM, which often has no ending."""
    if path.suffix.lower() in ENDINGS:
        return True
    try:
        # A pipe would keep one waiting.
        if path.name.lower() == dicom.INDEX or not path.is_file():
            return False
        with path.open("rb") as stream:
            return dicom.is_dicom(stream)
    except OSError:
        return False


def look(path: Path) -> Look:
    """Reads the head of a picture, and refuses what is none."""
    with _stream(path) as stream:
        if dicom.is_dicom(stream):
            return dicom.look(stream, str(path))
        with _opened(stream, str(path)) as image:
            return shades.look(image, str(path))


def read(paths: Sequence[Path], mode: str, size: tuple[int, int]) -> Pictures:
    """Reads pictures into one array, turned upright and brought to one form."""
    width, height = size
    images = _room((len(paths), {GREY: 1, COLOUR: 3}[mode], height, width))
    hows: Counter[str] = Counter()
    for i, path in enumerate(paths):
        with _stream(path) as stream:
            plain = _plain(stream, str(path))
        images[i] = _shaped(plain, mode, size)
        hows[plain.how] += bool(plain.how)
    return Pictures(
        images, tuple(f"{n} of {len(paths)} images {how}" for how, n in hows.items() if n)
    )


def from_bytes(content: bytes, what: str, shape: Sequence[int]) -> Array:
    """A picture that is not in a file, as a model takes it: [C, H, W]."""
    return _fitted(_plain(io.BytesIO(content), what), shape)


def from_pillow(image: Any, what: str, shape: Sequence[int]) -> Array:
    """A picture of Pillow's, read as its file would be: [C, H, W]."""
    with _taught(what, DAMAGED):
        few_pixels(what, *image.size)
        return _fitted(shades.plain(image, what), shape)


def _plain(stream: BinaryIO, what: str) -> Plain:
    if dicom.is_dicom(stream):
        return dicom.plain(stream, what)
    with _opened(stream, what) as image:
        return shades.plain(image, what)


def _fitted(plain: Plain, shape: Sequence[int]) -> Array:
    channels, height, width = shape
    return _shaped(plain, GREY if channels == 1 else COLOUR, (width, height))


def _shaped(plain: Plain, mode: str, size: tuple[int, int]) -> Array:  # [C, H, W]
    from PIL import Image

    image = plain.image.convert(mode)
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)  # averages where it shrinks
    return np.asarray(image).reshape(size[1], size[0], -1).transpose(2, 0, 1)


@contextmanager
def _stream(path: Path) -> Iterator[BinaryIO]:
    plain_file(path)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be opened ({reason(error)}); take it away") from error
    with stream:
        yield stream


@contextmanager
def _opened(stream: BinaryIO, what: str) -> Iterator["ImageFile"]:
    """Opens a picture of a known format and a sane size, of which the head alone was read."""
    from PIL import Image

    with _taught(what, UNKNOWN):
        # Left to itself, Pillow hands a file that begins like PostScript to Ghostscript.
        image = Image.open(stream, formats=FORMATS)
    with image, _taught(what, DAMAGED):
        few_pixels(what, *image.size)
        yield image


@contextmanager
def _taught(what: str, words: str) -> Iterator[None]:
    """Turns what the decoders of damaged files raise, which is of many kinds, into a sentence."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd heads of whole pictures, of transparency
            yield
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        raise UserError(f"{what} has too many pixels ({error}); make it smaller") from error
    except Exception as error:
        raise UserError(f"{what} {words.format(reason(error))}; take it away") from error


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
