"""Federated optimisation in heterogeneous networks (Li et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import NonNegative
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots


@dataclass(frozen=True)
class FedProx(FedAvg):
    """Keeps clients close to the server: f_k(w) + μ/2·‖w − w_server‖²."""

    mu: Annotated[NonNegative, "μ, how strongly local steps are held to the server's model"] = 0.1

    citation: ClassVar[str] = "Li et al., 2020"

    def objective(
        self, task: Task, params: Params, server: Slots, batch: Batch
    ) -> tuple[Tensor, Params]:
        value, buffers = super().objective(task, params, server, batch)
        for name, origin in server["model"].items():
            if self.trainable(task, name):
                value = value + self.mu / 2 * (params[name] - origin).square().sum()
        return value, buffers
