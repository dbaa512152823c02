"""Clients that come after the rounds: each plays some by itself, before it adapts its model."""

from dataclasses import dataclass, replace
from typing import ClassVar

from fedpn.core.trees import Slots, public
from fedpn.federated.phase import Phase, Reply
from fedpn.federated.site import Site
from fedpn.federated.training import Train


@dataclass(frozen=True)
class CatchUp(Phase):
    """What a method's clients learn for themselves in rounds, without moving the server.

    So a newcomer gets a head of its own (FedPer), a model of its own (Ditto), or norms of its own
    (FedBN) in the method's way; methods whose clients remember nothing need nothing.
    """

    train: Train
    rounds: int

    name: ClassVar[str] = "catch up"
    sums: ClassVar[bool] = False

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        for number in range(self.rounds if any(memory.values()) else 0):
            memory = self.train.client(replace(site, round=number), public(sent), memory).memory
        return Reply(memory)
