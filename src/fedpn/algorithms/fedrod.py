"""On bridging generic and personalised federated learning (Chen & Chao, 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.fedpn import frequencies
from fedpn.core.task import Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class FedRoD(FedAvg):
    """A generic head trained by balanced softmax, and a personal one that corrects it at home.

    Generic: CE(h(z) + log p_k(y)); personal: CE(h(z) + h_k(z)), which moves h_k alone. Body and
    generic head are averaged; the nearest relative of a switch between two models.
    """

    network: ClassVar[str] = "two-headed"
    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Chen & Chao, 2022"

    def personal(self, task: Task, name: str) -> bool:
        return name in task.prior_names or name in task.own_head_names

    def init(self, task: Task, params: Params) -> Slots:
        own = split(params, lambda n: self.personal(task, n))[0]
        # Alone, the generic head is corrected by nothing.
        return super().init(task, params) | {"_nothing": zip_with(torch.zeros_like, own)}

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        memory = super().enroll(task, params, labels)
        return memory | {"model": memory["model"] | frequencies(task, params, labels)}

    def shared(self, server: Slots) -> Params:
        return server["model"] | server["_nothing"]
