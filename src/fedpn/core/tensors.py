"""Tensors of a safetensors file, read and never mapped: who maps a file that shrinks is killed."""

import json
import math
import os
from pathlib import Path
from typing import IO, Any

from safetensors.torch import load
from torch import Tensor

from fedpn.core.trees import Params

HEADER = 100_000_000  # bytes, as safetensors has it
VOLUME = 2**40  # numbers of a tensor
ABOUT = "__metadata__"


def read_part(path: Path, prefix: str) -> tuple[Params, dict[str, str]]:
    """The tensors below a prefix, by their whole names, and what was said about the file.

    Raises errors of many kinds where the file is damaged.
    """
    with path.open("rb") as file:
        header, start = _header(file)
        about = header.pop(ABOUT, None) or {}
        names = [name for name in header if name.startswith(prefix)]
        return {name: _tensor(file, start, header[name]) for name in names}, about


def _tensor(file: IO[bytes], start: int, entry: dict[str, Any]) -> Tensor:
    """Reads one, as a file of its own, so that safetensors judges its type and its shape."""
    if math.prod(max(side, 1) for side in entry["shape"]) > VOLUME:  # though it hold nothing
        raise ValueError(f"a tensor has the shape {entry['shape']}")
    begin, end = entry["data_offsets"]
    file.seek(start + begin)
    text = json.dumps({"": entry | {"data_offsets": [0, end - begin]}}).encode()
    content = len(text).to_bytes(8, "little") + text + _exactly(file, end - begin)
    return load(content)[""].clone()  # aligned as PyTorch has it


def names_of(path: Path) -> list[str]:
    """The names of the tensors in a file."""
    with path.open("rb") as file:
        return [name for name in _header(file)[0] if name != ABOUT]


def _header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """What a file says of its tensors, which fill it without gaps; and where they begin."""
    size = int.from_bytes(_exactly(file, 8), "little")
    if size > HEADER:
        raise ValueError(f"its header claims {size} bytes")
    header = json.loads(_exactly(file, size))
    if not isinstance(header, dict):
        raise ValueError("its header is no list of tensors")
    spans = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != ABOUT)
    ends = [0, *(end for _, end in spans)]
    held = os.fstat(file.fileno()).st_size - 8 - size
    if [begin for begin, _ in spans] != ends[:-1] or sorted(ends) != ends or ends[-1] != held:
        raise ValueError(f"its tensors do not fill the {held} bytes that are there")
    return header, 8 + size


def _exactly(file: IO[bytes], count: int) -> bytes:
    content = file.read(count)
    if len(content) != count:
        raise ValueError(f"it ends early, by {count - len(content)} bytes")
    return content
