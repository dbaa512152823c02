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

from fedpn.core.trees import Params, Slots
from fedpn.data.dataset import Array
from fedpn.data.units import of_names, of_rows
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site

SLOT = "copies"  # of the server's state
PLACES, NAMES = 1 << 16, 1 << 14  # of sketches of units, and of clients' names
SIGNS = 128  # of one name
MANY = 0.01  # the share of a client's units from which on others' copies count
ERRORS = 4.0  # by how many standard errors they must be more than none
UNKNOWN = -1.0  # the share where nobody looked, or not at all clients


@dataclass(frozen=True)
class LookForCopies(Phase):
    """Adds up sketches of clients' units; a silent client adds nothing."""

    silent: bool = False

    name: ClassVar[str] = "copies"
    reach: ClassVar[float] = 1e9  # who is silent sends nearly nothing

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        found, one = own_part(site, sent, _own_units(site)), torch.tensor(1.0, dtype=torch.float64)
        if self.silent:
            found = {name: torch.zeros_like(t) for name, t in found.items()}
        return Reply(memory, {SLOT: found | {"clients": one}})

    def server(self, server: Slots, total: Total) -> Slots:
        return server | {SLOT: {name: t.round() for name, t in total.sum[SLOT].items()}}

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = statistics[SLOT]
        if any(((t - t.round()).abs() > 1e-3).any() for t in found.values()):
            return "its sketch is none of whole rows"
        clients, looked = float(found["clients"]), float(found["looked"])
        # Training rows are half of all units, and one less of a small client.
        most = {"sketch": 2 * (rows or 0) + 2 * clients, "names": SIGNS * looked, "looked": clients}
        above = rows is not None and any(
            float(found[name].abs().sum()) > m + 0.5 for name, m in most.items()
        )
        return "its sketch has more rows than it has" if above else ""


def own_part(site: Site, sent: Slots, units: Array) -> Params:
    """What a client adds: a sketch of its units, one of its name, by which it finds itself in the
    sum, and that it looked."""
    key = _key(sent)
    return {
        "sketch": sketch(units, key, PLACES),
        "names": sketch(_name_units(site), key, NAMES),
        "looked": torch.tensor(1.0, dtype=torch.float64),
    }


def _name_units(site: Site) -> Array:
    return of_names(np.array([f"{sign} {site.name}" for sign in range(SIGNS)]))


def _own_units(site: Site) -> Array:
    """Groups by their names; else rows as all clients prepare them, each once."""
    setup, units = site.setup, site.setup.federation.units
    rows = setup.federation.rows(site.client)
    if units is None:
        return rows[:0]
    if setup.dataset.groups:
        return np.unique(units[rows])
    return np.unique(of_rows(setup.data.x[torch.from_numpy(rows).to(setup.device)].cpu().numpy()))


def _repeated_once_prepared(site: Site, units: Array) -> float:
    """The share of units that were dealt as different ones, and are not by the columns in use."""
    federation = site.setup.federation
    if federation.units is None or site.setup.dataset.recipe is None:
        return 0.0
    dealt = len(np.unique(federation.units[federation.rows(site.client)]))
    return 1 - len(units) / dealt


def sketch(units: Array, key: bytes, places: int) -> Tensor:  # [U] -> [places]
    """Signs of units at their places.

    >>> some, more = (sketch(np.arange(*ends), b"key", PLACES) for ends in ((0, 100), (99, 200)))
    >>> 80 <= float(some @ some) <= 120, abs(float(some @ more)) <= 9
    (True, True)
    """
    hashes = np.frombuffer(b"".join(_keyed(units.tolist(), key)), "<u8")
    signs = 1.0 - 2.0 * (hashes >> np.uint64(63))
    where = (hashes % np.uint64(places)).astype(np.int64)
    return torch.from_numpy(np.bincount(where, signs, places).astype(np.float64))


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


def share_elsewhere(site: Site, sent: Slots) -> float:
    """The share of a client's units that other clients have too, or that repeat once columns are
    left out; 0 where there are none to speak of, `UNKNOWN` where not all clients looked."""
    units = _own_units(site)
    hidden = _repeated_once_prepared(site, units)
    if hidden > MANY or SLOT not in sent:
        return hidden if hidden > MANY else UNKNOWN
    total = {name: t.cpu() for name, t in sent[SLOT].items()}
    mine, size = own_part(site, sent, units), len(units)
    is_summed = float(mine["names"] @ total["names"]) > SIGNS / 2
    others = total["sketch"] - mine["sketch"] * is_summed
    error = float(mine["sketch"].norm() * others.norm()) / PLACES**0.5
    count = float(mine["sketch"] @ others)
    if size and count > max(ERRORS * error, MANY * size):
        return min(count / size, 1.0)
    return 0.0 if total["looked"] >= total["clients"] else UNKNOWN


def without(site: Site, server: Slots) -> Slots:
    """A server's state without what a client has added."""
    if SLOT not in server:
        return server
    total, mine = server[SLOT], own_part(site, server, _own_units(site))
    if float(mine["names"] @ total["names"]) <= SIGNS / 2:
        mine = {name: torch.zeros_like(t) for name, t in mine.items()}
    mine["clients"] = torch.tensor(1.0, dtype=torch.float64)
    return server | {SLOT: {name: t - mine[name] for name, t in total.items()}}
