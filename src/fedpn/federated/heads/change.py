"""A federation that is done takes a client in, or lets one go: its sums are added or taken away.

What the sums are of stays: filters, frequencies and scales, the weights of classes, λ and the
temperature. Within these, the head after a client has gone is that of never having met it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedpn.core.trees import Slots, zip_with
from fedpn.federated.gather import Total
from fedpn.federated.heads.base import SLOT
from fedpn.federated.heads.features import Features
from fedpn.federated.heads.sums import (
    gram_of,
    not_counts,
    not_products,
    pack,
    solve,
    unpack,
)
from fedpn.federated.phase import SUMS, Phase, Reply, without_sums
from fedpn.federated.site import Site


@dataclass(frozen=True)
class Change(Phase):
    """One client's sums, by which the head is solved again."""

    features: Features
    leaves: bool  # taken away, not added

    name: ClassVar[str] = "change"

    def reads(self, server: Slots) -> Slots:
        return without_sums(server)

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        gram, cross = gram_of(self.features, site, sent[SLOT])
        counts = site.counts.double()
        sums = {"gram": pack(gram), "cross": cross}
        return Reply(memory, {"sums": sums, "classes": {"counts": counts}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        counts = not_counts(statistics["classes"]["counts"], rows)
        return counts or not_products(statistics["sums"])

    def server(self, server: Slots, total: Total) -> Slots:
        sign = -1.0 if self.leaves else 1.0
        sums = zip_with(lambda old, new: old + sign * new, server[SUMS], total.sum["sums"])
        state = dict(server[SLOT])
        matrix = solve(unpack(sums["gram"]), sums["cross"], float(state["ridge"]))
        state["matrix"] = matrix.float()
        state["counts"] = state["counts"] + sign * total.sum["classes"]["counts"]
        return server | {SLOT: state, SUMS: sums}
