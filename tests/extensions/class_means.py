"""A phase of one's own: federated class means, by which the global model answers."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

from fedpn.federated.heads.base import Head
from fedpn.federated.phase import Reply


@dataclass(frozen=True)
class Means(Head):
    name: ClassVar[str] = "my class means"

    def client(self, site, sent, memory):
        z = site.observer.embed(site.train)
        member = one_hot(site.setup.labels(site.train), site.setup.blueprint.classes).to(z)
        means = {"z": member.T @ z / len(z), "rows": member.mean(0)}
        return Reply(memory, {"sums": means}, weight=len(z))

    def server(self, server, total):
        sums = total.sum["sums"]
        return server | {"head": {"means": sums["z"] / sums["rows"].clamp(min=1)[:, None]}}

    def logits(self, seen, state):
        return -torch.cdist(seen, state["means"]).square()
