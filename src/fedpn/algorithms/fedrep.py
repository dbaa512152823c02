"""Exploiting shared representations (Collins et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedpn.algorithms.fedper import FedPer
from fedpn.core.bounds import Share
from fedpn.core.optim import owner
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots


@dataclass(frozen=True)
class FedRep(FedPer):
    """Fits the head with the body fixed, then the body with the head fixed; shares the body.

    `head_share` is the share of a round's steps that goes to the head. What is fixed is fixed
    whole: its optimiser state and its running statistics hold still as well.
    """

    head_share: Annotated[
        Share, "the share of a round's steps that goes to the head; the body has the others"
    ] = 0.5

    citation: ClassVar[str] = "Collins et al., 2021"

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        new = super().step(task, server, local, batch)
        on_head = batch.progress < self.head_share

        def moved(old: Tensor, stepped: Tensor, name: str) -> Tensor:
            moves = on_head if name in task.head_names else ~on_head
            return torch.where(moves, stepped, old)

        def merge(role: str) -> Params:
            parameter = owner if role == "optimizer" else str
            return {n: moved(t, new[role][n], parameter(n)) for n, t in local[role].items()}

        return new | {"model": merge("model"), "optimizer": merge("optimizer")}
