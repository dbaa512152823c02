"""Tensors as one row of bytes: Flower sends every array by itself, with requests for each part.

A header tells names, types and shapes, as JSON behind its length; then come the numbers, in the
order of the header and with no gap.
"""

import json
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpn.core.trees import Params

Bytes = NDArray[np.uint8]
TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
LENGTH = 8  # bytes of the header's length
SIDES = 8  # of a tensor


def to_bytes(params: Params) -> Bytes:
    """
    >>> from_bytes(to_bytes({"w": torch.tensor([[1.0, 2.0]])}))
    {'w': tensor([[1., 2.]])}
    """
    kinds = [(n, str(t.dtype).removeprefix("torch."), list(t.shape)) for n, t in params.items()]
    header = json.dumps(kinds, ensure_ascii=False).encode()
    parts = [len(header).to_bytes(LENGTH, "little"), header]
    parts += [raw(t) for t in params.values()]
    return np.frombuffer(b"".join(parts), np.uint8)


def raw(tensor: Tensor) -> bytes:
    """A tensor's bytes, whatever its type: NumPy does not know all of them."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def from_bytes(packed: Any) -> Params:
    """Undoes `to_bytes`; what it did not make is a ValueError."""
    if isinstance(packed, np.ndarray) and packed.dtype == np.uint8 and packed.ndim == 1:
        packed = packed.tobytes()
    if not isinstance(packed, bytes):
        raise ValueError("what came is no array of bytes")
    data = packed
    end = LENGTH + int.from_bytes(data[:LENGTH], "little")
    if len(data) < LENGTH or end > len(data):
        raise ValueError("what came ends in its header")
    try:
        kinds = [(n, TYPES[kind], shape) for n, kind, shape in json.loads(data[LENGTH:end])]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("what came has a header that cannot be read") from None
    params: Params = {}
    for name, kind, shape in kinds:
        sides = isinstance(shape, list) and all(type(s) is int and 0 <= s < 2**40 for s in shape)
        if not isinstance(name, str) or name in params or not sides or len(shape) > SIDES:
            raise ValueError("what came has a header that cannot be")
        size = math.prod(shape) * kind.itemsize
        if end + size > len(data):
            raise ValueError("what came is shorter than its header says")
        part = bytearray(data[end : end + size])  # of its own, and writable
        flat = torch.frombuffer(part, dtype=kind) if size else torch.empty(0, dtype=kind)
        params[name] = flat.reshape(shape)
        end += size
    if end != len(data):
        raise ValueError("what came is longer than its header says")
    return params
