"""Rows that other clients have as well, found by sums of keyed hashes: no row travels.

Each client throws its units (`data.units`) into a sketch: a unit's keyed hash names a place and a
sign (Charikar et al., 2002). Sketches add up. The inner product of a client's own sketch with the
others' sum is how many of its units others have too, but for an error that is known.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpn.core.trees import Slots
from fedpn.data.dataset import Array
from fedpn.data.units import of_rows
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site

SLOT = "copies"  # of the server's state
PLACES = 1 << 16  # of a sketch
MANY = 0.01  # the share of a client's units from which on others' copies count
ERRORS = 4.0  # by how many standard errors they must be more than none
UNKNOWN = -1.0  # the share where nobody looked, or not at all clients


@dataclass(frozen=True)
class LookForCopies(Phase):
    """Adds up sketches of clients' units; a silent client adds nothing."""

    silent: bool = False

    name: ClassVar[str] = "copies"

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        mine = torch.zeros(PLACES, dtype=torch.float64) if self.silent else own_sketch(site, sent)
        one = torch.tensor(1.0, dtype=torch.float64)
        looked = one * (not self.silent)
        return Reply(memory, {SLOT: {"sketch": mine, "clients": one, "looked": looked}})

    def server(self, server: Slots, total: Total) -> Slots:
        return server | {SLOT: {name: t.round() for name, t in total.sum[SLOT].items()}}

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = statistics[SLOT]
        if float(found["clients"]) != 1 or float(found["looked"]) not in (0.0, 1.0):
            return "it counts as more than one client"
        if (found["sketch"] != found["sketch"].round()).any():
            return "its sketch is none of whole rows"
        # Training rows are half of all units, and one less of a small client.
        if rows is not None and float(found["sketch"].abs().sum()) > 2 * rows + 2:
            return "its sketch has more rows than it has"
        return ""


def own_sketch(site: Site, sent: Slots) -> Tensor:  # [PLACES]
    """The sketch of a client's units."""
    return sketch(_own_units(site), _key(sent))


def _own_units(site: Site) -> Array:
    """Groups by their names; else rows as all clients prepare them, each once."""
    setup, units = site.setup, site.setup.federation.units
    rows = setup.federation.rows(site.client)
    if units is None:
        return rows[:0]
    if setup.dataset.groups:
        return np.unique(units[rows])
    return np.unique(of_rows(setup.data.x[torch.from_numpy(rows).to(setup.device)].cpu().numpy()))


def sketch(units: Array, key: bytes) -> Tensor:  # [U] -> [PLACES]
    """Signs of units at their places.

    >>> some = sketch(np.arange(100), b"key")
    >>> 80 <= float(some @ some) <= 120, float(some @ sketch(np.arange(99, 200), b"key")) <= 9
    (True, True)
    """
    hashes = np.frombuffer(b"".join(_keyed(units.tolist(), key)), "<u8")
    signs = 1.0 - 2.0 * (hashes >> np.uint64(63))
    places = (hashes % np.uint64(PLACES)).astype(np.int64)
    return torch.from_numpy(np.bincount(places, signs, PLACES).astype(np.float64))


def _keyed(units: Iterable[int], key: bytes) -> Iterable[bytes]:
    for unit in units:
        value = unit.to_bytes(8, "little", signed=True)
        yield hashlib.blake2b(value, key=key, digest_size=8).digest()


def _key(sent: Slots) -> bytes:
    """A key that changes with each run: what all were sent of the model."""
    digest = hashlib.blake2b(digest_size=32)
    for _, tensor in sorted(sent.get("model", {}).items()):
        digest.update(tensor.detach().cpu().flatten()[:64].double().numpy().tobytes())
    return digest.digest()


def share_elsewhere(site: Site, sent: Slots, member: bool = True) -> float:
    """The share of a client's units that other clients have too; 0 where there are none to speak
    of, `UNKNOWN` where not all clients looked. A `member` is among those who were summed."""
    found = sent.get(SLOT)
    if found is None:
        return UNKNOWN
    units = _own_units(site)
    mine, size = sketch(units, _key(sent)), len(units)
    others = found["sketch"].cpu() - mine * member
    count, error = float(mine @ others), float(mine.norm() * others.norm()) / PLACES**0.5
    if size and count > max(ERRORS * error, MANY * size):
        return min(count / size, 1.0)
    return 0.0 if found["looked"] >= found["clients"] else UNKNOWN


def without(site: Site, server: Slots) -> Slots:
    """A server's state without a client's sketch."""
    if SLOT not in server or not float(server[SLOT]["looked"]):
        return server
    found = server[SLOT]
    one = torch.tensor(1.0, dtype=torch.float64)
    less = {"sketch": own_sketch(site, server), "clients": one, "looked": one}
    return server | {SLOT: {name: t - less[name] for name, t in found.items()}}
