"""The phase before the network: sums from which inputs are normalised, the same for all clients."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedpn.core.trees import Slots
from fedpn.data.moments import Moments, moments
from fedpn.data.prepared import numbers_if
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site

SLOT = "moments"


@dataclass(frozen=True)
class SumMoments(Phase):
    """Counts, sums and squares of the training rows, per channel or column."""

    name: ClassVar[str] = "normalise"
    open: ClassVar[bool] = True
    wide: ClassVar[bool] = True
    reach: ClassVar[float] = 1e9

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        found = moments(numbers_if(site.setup.dataset).x[site.train])
        named = {name: torch.from_numpy(column) for name, column in found._asdict().items()}
        return Reply(memory, {SLOT: named})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = statistics[SLOT]
        counts, total, squares = (found[name] for name in ("counts", "total", "squares"))
        sound = (counts > 0).all() and (squares >= 0).all()
        sound &= (total.square() <= counts * squares * (1 + 1e-9) + 1e-9).all()
        if rows is not None:  # pixels of a channel, or cells of a column, as many in every row
            sound &= (counts % rows == 0).all() and (counts == counts[0]).all()
        return "" if sound else "its sums are none of rows"

    def server(self, server: Slots, total: Total) -> Slots:
        return server | total.sum


def read_moments(server: Slots) -> Moments:
    """The sums of all clients."""
    return Moments(**{name: t.numpy() for name, t in server[SLOT].items()})
