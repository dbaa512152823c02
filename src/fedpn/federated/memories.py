"""What clients remember between rounds, in a file: memory does not grow with those who idle.

Every client has three records of fixed size in one file. A round writes into one that neither of
the last two checkpoints names, so that a run that is killed finds the state of its checkpoint
untouched, and that of the checkpoint before as well. Clients that never joined have no record:
they are enrolled when they do. Records carry checksums, which checkpoints keep.
"""

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.core.store import Damaged
from fedpn.core.trees import Params, Slots, flatten, unflatten

NEVER = -1
RECORDS = 3


class Index(NamedTuple):
    """Which record holds for each client, and its checksum."""

    record: np.ndarray  # int8 [clients]
    checksum: np.ndarray  # int64 [clients]

    def copy(self) -> "Index":
        return Index(self.record.copy(), self.checksum.copy())


class Memories:
    """The memories of all clients, by number."""

    def __init__(self, enroll: Callable[[int], Slots], clients: int, path: Path | None = None):
        self.enroll, self.clients, self.path = enroll, clients, path
        template = enroll(0)
        self.roles = tuple(template)
        self.layout = [(n, t.shape, t.dtype, _size(t)) for n, t in flatten(template).items()]
        self.size = sum(size for *_, size in self.layout)
        nobody = np.full(clients, NEVER, np.int8)
        self.current = Index(nobody, np.zeros(clients, np.int64))
        self.saved = [self.current.copy(), self.current.copy()]  # the last checkpoint's, and before
        self.records: dict[tuple[int, int], bytes] = {}  # where there is no file
        self._file: int | None = None

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> Slots:
        """Reads a client's memory, or enrols the client."""
        which = int(self.current.record[client])
        if which == NEVER:
            return self.enroll(client)
        record = self._read(which, client)
        tensors, start = {}, 0
        for name, shape, dtype, size in self.layout:
            tensors[name] = torch.empty(shape, dtype=dtype)
            if size:
                part = torch.frombuffer(record, dtype=torch.uint8, count=size, offset=start)
                tensors[name] = part.view(dtype).reshape(shape)
            start += size
        return unflatten(tensors, self.roles)

    def __setitem__(self, client: int, memory: Slots) -> None:
        """Writes a client's memory into a record that no checkpoint names."""
        tensors = flatten(memory)
        if tensors.keys() != {name for name, *_ in self.layout}:
            strange = tensors.keys() ^ {name for name, *_ in self.layout}
            raise UserError(f"a client's memory must keep the entries of `enroll`, not {strange}")
        for name, shape, dtype, _ in self.layout:
            found = tensors[name]
            if found.shape != shape or found.dtype != dtype:
                raise UserError(
                    f"a client's memory must keep {name} as `enroll` made it, {dtype} "
                    f"{tuple(shape)}, not {found.dtype} {tuple(found.shape)}"
                )
        named = {int(index.record[client]) for index in self.saved}
        which = next(record for record in range(RECORDS) if record not in named)
        packed = bytearray()
        for name, *_ in self.layout:
            part = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            packed += part.numpy().tobytes()
        self._write(which, client, bytes(packed))
        self.current.record[client] = which
        self.current.checksum[client] = zlib.crc32(packed)

    def save(self) -> Params:
        """Makes the present state the one to come back to; returns what a checkpoint must keep."""
        if self._file is not None:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise UserError(f"{self.path} cannot be written: {error.strerror}") from None
        self.saved = [self.current.copy(), self.saved[0]]
        record, checksum = (torch.from_numpy(a.copy()) for a in self.current)
        return {"memories": record, "checksums": checksum}

    def restore(self, kept: Params) -> None:
        """Comes back to a checkpoint's state, after a look at every record that it names."""
        record, checksum = kept["memories"].numpy(), kept["checksums"].numpy()
        index = Index(record.astype(np.int8), checksum.astype(np.int64))
        if len(record) != self.clients:
            raise Damaged(f"the checkpoint knows {len(record)} clients, not {self.clients}")
        for client in np.flatnonzero(index.record != NEVER).tolist():
            found = self._read(int(index.record[client]), client)
            if zlib.crc32(found) != index.checksum[client]:
                raise Damaged(f"{self.path} is damaged: what client {client} remembers is lost")
        self.current, self.saved = index, [index.copy(), index.copy()]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()

    def _place(self, which: int, client: int) -> int:
        return (which * self.clients + client) * self.size

    def _read(self, which: int, client: int) -> bytearray:
        if self.path is None or not self.size:
            return bytearray(self.records.get((which, client), b""))
        if self._file is None and not self.path.exists():
            raise Damaged(f"{self.path} is missing: what clients remember is lost")
        found = os.pread(self._open(), self.size, self._place(which, client))
        if len(found) != self.size:
            raise Damaged(f"{self.path} is cut short: what client {client} remembers is lost")
        return bytearray(found)

    def _write(self, which: int, client: int, content: bytes) -> None:
        if self.path is None or not self.size:
            self.records[which, client] = content
            return
        # A plain write: on a full disk it fails with words, where a mapped file would kill us.
        try:
            start, view = self._place(which, client), memoryview(content)
            while view:
                written = os.pwrite(self._open(), view, start)
                start, view = start + written, view[written:]
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from None

    def _open(self) -> int:
        if self._file is None:
            assert self.path is not None
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
