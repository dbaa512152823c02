"""Bodies in JSON: inputs and values are counted while they come, before any is built."""

import re
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from pydantic_core import from_json

from fedpn.service.limits import Lease, TooLarge

MARKS = b"[]{},"
OTHERS = bytes(set(range(256)) - set(MARKS))
ESCAPED = re.compile(rb"\\.", re.DOTALL)
STEP = np.zeros(256, np.int64)
STEP[list(b"[{")], STEP[list(b"]}")] = 1, -1
INPUTS = 2  # the depth of the commas between inputs: {"inputs": [ , ]}
PART = 2**16  # bytes that are counted at once
# Bytes that Python takes at most, beside the texts themselves (64 bits).
LIST, OBJECT, VALUE, TEXT = 64, 240, 40, 60
DENSE = 40  # of any values, for each byte of their text


class Tally:
    r"""Counts what a JSON text holds, part by part.

    >>> tally = Tally()
    >>> for part in (b'{"inputs": [[1, 2], ["a,\\', b'"]", {}], [', b"]]}"):
    ...     tally.add(part)
    >>> tally.inputs, tally.depth
    (3, 0)
    """

    def __init__(self) -> None:
        self.commas = self.depth = self.bytes = self.built = 0
        self._rest, self._quoted = b"", 0

    @property
    def inputs(self) -> int:
        """As many as there are at most."""
        return self.commas + 1

    @property
    def cost(self) -> int:
        """The memory that the text and its values take, at most."""
        return 3 * self.bytes + self.built

    def add(self, part: bytes) -> None:
        self.bytes += len(part)
        part = self._rest + part
        self._rest = b""
        if b"\\" in part:
            part = ESCAPED.sub(b"", part)
            if part.endswith(b"\\"):
                part, self._rest = part[:-1], b"\\"
        pieces = part.split(b'"')
        bare = b"".join(pieces[self._quoted :: 2])  # what is in no text
        self._quoted ^= (len(pieces) - 1) & 1
        marks = np.frombuffer(bare.translate(None, OTHERS), np.uint8)
        depth = self.depth + STEP[marks].cumsum()
        is_comma = marks == ord(",")
        self.commas += int((is_comma & (depth == INPUTS)).sum())
        self.built += LIST * bare.count(b"[") + OBJECT * bare.count(b"{")
        self.built += VALUE * int(is_comma.sum()) + TEXT * len(pieces) // 2
        self.depth = int(depth[-1]) if len(depth) else self.depth


async def read_body(parts: AsyncIterator[bytes], most_inputs: int, lease: Lease) -> bytearray:
    """A body whose values may be built: their memory is reserved, and inputs are few enough.

    A body of a single part is small whatever it holds.
    """
    body, tally = bytearray(), Tally()
    async for part in parts:
        body += part
        while len(body) > max(tally.bytes, PART):
            tally.add(bytes(body[tally.bytes : tally.bytes + PART]))
            if tally.inputs > most_inputs:
                raise TooLarge(too_many(most_inputs))
            lease.hold(tally.cost)
    lease.hold(DENSE * min(len(body), PART))
    return body


def too_many(most: int) -> str:
    return f"a request may have at most {most} inputs"


def parse(body: bytearray) -> Any:
    """The values of a JSON text, or ValueError."""
    try:
        return from_json(body)
    except ValueError as error:
        raise ValueError(f"Invalid JSON: {error}") from None
