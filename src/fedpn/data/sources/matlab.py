"""Arrays of numbers in MATLAB 5 files; SciPy's reader, in C, may crash on damaged ones."""

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np

from fedpn.data.dataset import Array

HEAD = 128  # bytes: words, the version, the order of bytes
ARRAY, COMPRESSED = 14, 15  # kinds of elements; those of numbers are below
NUMBERS = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}
NUMBERS |= {12: "<i8", 13: "<u8"}
CLASSES = range(6, 16)  # of arrays of numbers; others hold texts, cells, structures
COMPLEX = 0x800


def arrays(content: bytes, most: int) -> dict[str, Array]:
    """Every array of real numbers by its name; none may unpack to more bytes than `most`."""
    if content[126:HEAD] != b"IM":
        raise ValueError("it does not begin like a MATLAB 5 file")
    found: dict[str, Array] = {}
    for kind, body in _elements(memoryview(content)[HEAD:]):
        if kind == COMPRESSED:
            kind, body = next(_elements(_unpacked(body, most)), (0, body))
        if kind == ARRAY:
            found |= _array(body)
    return found


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Kinds and bodies: a kind, a size, so many bytes; small ones have it all in 8 bytes."""
    place = 0
    while place < len(content):
        if place + 8 > len(content):
            raise ValueError("it ends early")
        kind, size = struct.unpack_from("<II", content, place)
        start, after = place + 8, place + 8 + size
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            start, after = place + 4, place + 8
        elif kind != COMPRESSED:
            after += -size % 8
        if start + size > min(after, len(content)):
            raise ValueError("it ends early")
        yield kind, content[start : start + size]
        place = after


def _unpacked(body: memoryview, most: int) -> memoryview:
    content = zlib.decompressobj().decompress(body, most + 1)
    if len(content) > most:
        raise ValueError("it unpacks to too much")
    return memoryview(content)


def _array(body: memoryview) -> dict[str, Array]:
    """Flags, lengths of axes, a name, numbers with the first axis innermost."""
    parts = list(islice(_elements(body), 4))
    if len(parts) < 4 or len(parts[0][1]) < 8:
        raise ValueError("an array has no head")
    flags = struct.unpack_from("<I", parts[0][1])[0]
    if flags & 0xFF not in CLASSES or flags & COMPLEX or parts[3][0] not in NUMBERS:
        return {}
    shape = tuple(np.frombuffer(parts[1][1], "<i4").tolist())
    values = np.frombuffer(parts[3][1], NUMBERS[parts[3][0]])
    if min(shape, default=0) < 1 or len(shape) > 4 or math.prod(shape) != len(values):
        raise ValueError(f"an array promises the shape {shape} and holds {len(values)} numbers")
    return {bytes(parts[2][1]).decode("latin-1"): values.reshape(shape, order="F")}
