"""Measuring the effects of non-identical data distribution (Hsu et al., 2019)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Share
from fedpn.core.task import Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """Adds momentum to the server's step: v ← βv + (mean − w), w ← w + v."""

    momentum: Annotated[Share, "of the clients: the paper's are plain SGD"] = 0.0
    server_momentum: Annotated[Share, "β, of the server's step"] = 0.9

    citation: ClassVar[str] = "Hsu et al., 2019"

    def init(self, task: Task, params: Params) -> Slots:
        trained = split(params, lambda n: self.trainable(task, n))[0]
        return super().init(task, params) | {"_velocity": zip_with(torch.zeros_like, trained)}

    def aggregate(self, server: Slots, mean: Slots, share: float) -> Slots:
        velocity = {
            name: self.server_momentum * v + mean["model"][name] - server["model"][name]
            for name, v in server["_velocity"].items()
        }
        moved = {name: server["model"][name] + v for name, v in velocity.items()}
        return server | mean | {"model": mean["model"] | moved, "_velocity": velocity}
