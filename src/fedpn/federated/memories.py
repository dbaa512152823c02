"""What clients remember between rounds, in a file: memory does not grow with those who idle.

Every client has two records of fixed size in a memory-mapped, sparse file. A round writes into the
one that the last checkpoint does not name, so that a run that is killed finds the state of its
checkpoint untouched. Clients that never joined have no record: they are enrolled when they do.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, unflatten

NEVER = -1


class Memories:
    """The memories of all clients, by number."""

    def __init__(self, enroll: Callable[[int], Slots], clients: int, path: Path | None = None):
        self.enroll, self.clients, self.path = enroll, clients, path
        template = enroll(0)
        self.roles = tuple(template)
        self.layout = [(n, t.shape, t.dtype, _size(t)) for n, t in flatten(template).items()]
        self.size = sum(size for *_, size in self.layout)
        self.current = np.full(clients, NEVER, np.int8)  # which record holds
        self.saved = self.current.copy()  # which record the last checkpoint names
        self.records = self._map()

    def _map(self) -> Any:
        shape = (2, self.clients, self.size)
        self.found = True
        if self.path is None or not self.size:
            return np.zeros(shape, np.uint8)
        whole = self.path.exists() and self.path.stat().st_size == math.prod(shape)
        self.found = whole
        mode = "r+" if whole else "w+"
        return np.memmap(self.path, np.uint8, mode, shape=shape)  # type: ignore[call-overload]

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> Slots:
        """Reads a client's memory, or enrols the client."""
        which = self.current[client]
        if which == NEVER:
            return self.enroll(client)
        record = np.array(self.records[which, client])  # a copy: the file may change
        tensors, start = {}, 0
        for name, shape, dtype, size in self.layout:
            part = torch.from_numpy(record[start : start + size])
            tensors[name] = part.view(dtype).reshape(shape)
            start += size
        return unflatten(tensors, self.roles)

    def __setitem__(self, client: int, memory: Slots) -> None:
        """Writes a client's memory into the record that no checkpoint names."""
        which = 1 - self.saved[client] if self.saved[client] != NEVER else 0
        tensors, start = flatten(memory), 0
        if tensors.keys() != {name for name, *_ in self.layout}:
            strange = tensors.keys() ^ {name for name, *_ in self.layout}
            raise UserError(f"a client's memory must keep the entries of `enroll`, not {strange}")
        for name, _, _, size in self.layout:
            part = tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            self.records[which, client, start : start + size] = part.numpy()
            start += size
        self.current[client] = which

    def save(self) -> Tensor:
        """Makes the present state the one to come back to; returns what a checkpoint must keep."""
        if isinstance(self.records, np.memmap):
            self.records.flush()
        self.saved = self.current.copy()
        return torch.from_numpy(self.saved.copy())

    def restore(self, saved: Tensor) -> None:
        """Comes back to a checkpoint's state."""
        if not self.found and (saved != NEVER).any():
            raise UserError(f"{self.path} is missing or damaged: what clients remember is lost")
        self.saved = saved.numpy().copy()
        self.current = self.saved.copy()


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
