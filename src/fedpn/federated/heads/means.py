"""Nearest class means: the simplest head in closed form."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import one_hot

from fedpn.core.trees import Params, Slots
from fedpn.federated.gather import Total
from fedpn.federated.heads.base import SLOT, Head
from fedpn.federated.heads.sums import not_counts
from fedpn.federated.phase import Reply
from fedpn.federated.site import Site


@dataclass(frozen=True)
class ClassMeans(Head):
    """log p(y | z) ∝ −½‖z − μ_y‖², with the federation's mean embedding of each class."""

    name: ClassVar[str] = "class means"

    def client(self, site: Site, sent: Slots, memory: Slots) -> Reply:
        z = site.observer.embed(site.train).double()
        member = one_hot(site.setup.labels(site.train), site.setup.blueprint.classes).to(z)
        return Reply(memory, {"sums": {"z": member.T @ z, "rows": member.sum(0)}})

    def objection(self, statistics: Slots, rows: int | None = None) -> str:
        return not_counts(statistics["sums"]["rows"], rows)

    def server(self, server: Slots, total: Total) -> Slots:
        sums = total.sum["sums"]
        return server | {SLOT: {"means": sums["z"] / sums["rows"].clamp(min=1)[:, None]}}

    def logits(self, seen: Tensor, state: Params) -> Tensor:
        apart = seen[:, None].double() - state["means"]
        return -0.5 * apart.square().sum(-1).float()
