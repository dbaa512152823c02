"""A second model that stays at home: what Ditto and APFL share."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.task import Task
from fedpn.core.trees import Params, Slots, split


@dataclass(frozen=True)
class Twin(FedAvg):
    """Trains FedAvg's model and, beside it, the client's `own`, which has its own optimiser."""

    headline: ClassVar[str] = "personal"

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        twin: Slots = {"own": params, "own_optimizer": self._fresh_optimizer(task, params)}
        return super().enroll(task, params, labels) | twin

    def start(self, task: Task, server: Slots, memory: Slots) -> Slots:
        kept = self.optimizer_state != "reset"
        state = memory["own_optimizer"] if kept else self._fresh_optimizer(task, memory["own"])
        return super().start(task, server, memory) | {"own": memory["own"], "own_optimizer": state}

    def move_own(self, task: Task, local: Slots, grads: Params, buffers: Params) -> Slots:
        """Takes a step of the own model."""
        moving, still = split(local["own"], lambda n: self.trainable(task, n))
        moved, state = self.local_optimizer().update(moving, grads, local["own_optimizer"])
        return {"own": still | moved | buffers, "own_optimizer": state}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        upload, kept = super().finish(task, server, memory, local)
        return upload, kept | {role: local[role] for role in ("own", "own_optimizer")}

    def owns(self, task: Task, name: str) -> bool:
        return True

    def predictor(self, server: Slots, memory: Slots) -> Params:
        return memory["own"]
