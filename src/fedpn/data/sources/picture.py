"""Pictures of one size and one form."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array

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
PHOTOGRAPHS = {"JPEG", "MPO", "TIFF", "WEBP"}  # others would be decoded whole to learn of it


class Look(NamedTuple):
    """What a file's head tells."""

    width: int
    height: int
    mode: str


def look(path: Path) -> Look:
    """Reads the head of a picture, and refuses what is none."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow muses about odd heads of whole pictures
            with Image.open(path) as image:
                width, height = image.size
                mode, photograph = image.mode, image.format in PHOTOGRAPHS
                turned = photograph and image.getexif().get(ORIENTATION) in TURNED
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is not a picture that can be read; take it away") from error
    if mode not in MODES:
        raise UserError(
            f"{path} is a picture of the mode {mode!r}; save it with 8 bits a channel, "
            "in grey or in colour"
        )
    return Look(height, width, MODES[mode]) if turned else Look(width, height, MODES[mode])


def read(paths: Sequence[Path], mode: str, size: tuple[int, int]) -> Array:
    """Reads pictures into one array, turned upright and brought to one form: [N, C, H, W]."""
    width, height = size
    images = np.empty((len(paths), {GREY: 1, COLOUR: 3}[mode], height, width), np.uint8)
    for i, path in enumerate(paths):
        pixels = _read(path, mode, size)
        images[i] = pixels.reshape(height, width, -1).transpose(2, 0, 1)
    return images


def _read(path: Path, mode: str, size: tuple[int, int]) -> Array:
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of transparency, which is dropped
            with Image.open(path) as file:
                upright = ImageOps.exif_transpose(file) if file.format in PHOTOGRAPHS else file
                image = upright.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{path} is a damaged picture ({error}); take it away") from error
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)  # averages where it shrinks
    return np.asarray(image)


def resize(images: Array, size: tuple[int, int]) -> Array:
    """Brings [N, C, H, W] to another width and height.

    >>> resize(np.full((2, 3, 8, 6), 7, np.uint8), (16, 12)).shape
    (2, 3, 12, 16)
    """
    from PIL import Image

    width, height = size
    if images.shape[2:] == (height, width):
        return images
    resized = np.empty((*images.shape[:2], height, width), np.uint8)
    for i, image in enumerate(images):
        for c, channel in enumerate(image):
            picture = Image.fromarray(channel).resize(size, Image.Resampling.BILINEAR)
            resized[i, c] = np.asarray(picture)
    return resized
