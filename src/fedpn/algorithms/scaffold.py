"""Stochastic controlled averaging (Karimireddy et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Share
from fedpn.core.errors import UserError
from fedpn.core.gradient import gradient
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Corrects client drift with control variates: y ← y − η(∇f_k(y) − c_k + c).

    After K steps (option II): c_k⁺ = c_k − c + (x − y)/(Kη); the server's c moves by the share of
    clients that joined times their mean change.
    """

    momentum: Annotated[Share, "must be 0: gradients are read off clients' moves"] = 0.0

    citation: ClassVar[str] = "Karimireddy et al., 2020"

    def __post_init__(self) -> None:
        if self.optimizer != "sgd" or self.momentum:
            raise UserError(
                "scaffold reads the gradient off the clients' moves, which only plain SGD allows; "
                "use scaffold.optimizer=sgd and scaffold.momentum=0"
            )

    def init(self, task: Task, params: Params) -> Slots:
        return super().init(task, params) | {"control": self._zeros(task, params)}

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        zeros = self._zeros(task, params)
        return super().enroll(task, params, labels) | {"control": zeros}

    def start(self, task: Task, server: Slots, memory: Slots) -> Slots:
        some = next(iter(server["control"].values()))
        return super().start(task, server, memory) | {
            "correction": zip_with(torch.sub, server["control"], memory["control"]),
            "steps": {"count": some.new_zeros(())},
        }

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        moving, still = split(local["model"], lambda n: self.trainable(task, n))
        grads, value, buffers = gradient(
            lambda p: self.objective(task, still | p, server, batch), moving
        )
        grads = zip_with(torch.add, grads, local["correction"])
        moved, _ = self.local_optimizer().update(moving, grads, {})
        steps = {"count": local["steps"]["count"] + 1}
        model = still | moved | buffers
        return local | {"model": model, "steps": steps, "report": {"loss": value}}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        upload, kept = super().finish(task, server, memory, local)
        scale = 1 / (local["steps"]["count"] * self.lr)
        gain = {
            name: (server["model"][name] - local["model"][name]) * scale - c
            for name, c in server["control"].items()
        }
        control = zip_with(torch.add, memory["control"], gain)
        return upload | {"control": gain}, kept | {"control": control}

    def aggregate(self, server: Slots, mean: Slots, share: float) -> Slots:
        control = zip_with(lambda c, d: c + share * d, server["control"], mean["control"])
        return server | mean | {"control": control}

    def _zeros(self, task: Task, params: Params) -> Params:
        return zip_with(torch.zeros_like, split(params, lambda n: self.trainable(task, n))[0])
