"""Pooled calibration: what all clients' held-out rows say together, as counts."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedpn.core.trees import Slots
from fedpn.federated.copies import share_elsewhere
from fedpn.federated.gather import Total
from fedpn.federated.phase import Phase, Reply, without_sums
from fedpn.federated.site import Site
from fedpn.routing.pooled import count_rows
from fedpn.routing.settings import RoutingSettings

SLOT = "pool"  # of the server's state
# What promises rest on: rows that others may have trained on have no say in it.
PROMISED = {"foreign", "limits", "shared/odd", "bayes/odd"}


@dataclass(frozen=True)
class Pool(Phase):
    """Adds up how doubtful, and how wrong, the federation's model is on clients' held-out rows."""

    settings: RoutingSettings
    weighs: bool  # whether the rule that counts weighs both models, as Bayes' rule does

    name: ClassVar[str] = "pool"

    def reads(self, server: Slots) -> Slots:
        return without_sums(server)

    @torch.no_grad()
    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        setup, rows = site.setup, site.calibration
        counts = site.counts
        shared, labels = site.observer.shared(rows), setup.labels(rows).cpu()
        found = count_rows(shared, labels, counts, self.settings, self.weighs)
        promised = self.settings.risk or self.settings.sets
        if promised and share_elsewhere(site, sent) > 0:
            found |= {n: torch.zeros_like(found[n]) for n in PROMISED & found.keys()}
        return Reply(memory, {SLOT: {name: t.double() for name, t in found.items()}})

    def server(self, server: Slots, total: Total) -> Slots:
        return server | {SLOT: total.sum[SLOT]}

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        found = statistics[SLOT]
        if any((t < 0).any() for t in found.values()):
            return "counts and losses below 0"
        # Held-out rows are two for five to train on, and one more of a small client.
        counts = [t for name, t in found.items() if not name.endswith("heat")]
        if rows is not None and any(float(t.max()) > rows + 1 for t in counts):
            return "more rows than it has"
        votes = found.get("limits")
        if rows is not None and votes is not None and float(votes.sum()) > 1:
            return "more than one limit"
        return ""
