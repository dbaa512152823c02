"""Federated posterior networks (Kotelevskii et al., 2024)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Natural, NonNegative, Positive
from fedpn.core.optim import Optimizer, adam
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, split


@dataclass(frozen=True)
class FedPN(FedAvg):
    """Averages encoder, head and density; then each client learns its own head and density.

    The federated stage is FedAvg on the paper's loss (eq. 8). In the personal stage the encoder
    is frozen, and head and density start afresh and see the client's own rows alone.
    """

    loss: Annotated[Literal["repaired", "bayesian"], "eq. 8, or the original, eq. 6"] = "repaired"
    gamma: Annotated[NonNegative, "weight of the log-likelihood"] = 0.01
    cap: Annotated[
        NonNegative,
        "nats for each dimension of z, up to which density is rewarded; 0: without end, as in the "
        "paper",
    ] = 1.0
    entropy_weight: Annotated[NonNegative, "λ, of the Dirichlet's entropy"] = 0.0
    train_density: Annotated[Literal["label", "marginal"], "the flow of the label, or of all"] = (
        "label"
    )
    adapt_epochs: Annotated[
        Natural, "of the personal stage, where each client learns a head and a density of its own"
    ] = 10
    adapt_steps: Annotated[Natural, "at least as many, where the epochs give fewer"] = 1000
    adapt_lr: Annotated[Positive, "of the personal stage, which is by Adam"] = 1e-3

    network: ClassVar[str] = "posterior"
    headline: ClassVar[str] = "personal"  # of runs without a switch
    citation: ClassVar[str] = "Kotelevskii et al., 2024"

    def personal(self, task: Task, name: str) -> bool:
        return name in task.prior_names

    def adapts(self, task: Task, name: str) -> bool:
        return name in task.head_names

    def init(self, task: Task, params: Params) -> Slots:
        # The federation's own prior is even: it may not know who has how much of what.
        even = split(params, lambda n: n in task.prior_names)[0]
        return super().init(task, params) | {"_even": even}

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        prior = frequencies(task, params, labels)
        return super().enroll(task, params, labels) | {"model": prior}

    def adapt(
        self, task: Task, server: Slots, memory: Slots, fresh: Params, batches: Iterable[Batch]
    ) -> Slots:
        own = split(fresh, lambda n: self.adapts(task, n))[0]
        memory = memory | {"model": memory["model"] | own}
        return super().adapt(task, server, memory, fresh, batches)

    def adapt_optimizer(self) -> Optimizer:
        return adam(self.adapt_lr)

    def loss_options(self) -> dict[str, Any]:
        return {
            "name": self.loss,
            "gamma": self.gamma,
            "entropy_weight": self.entropy_weight,
            "cap": self.cap or math.inf,
            "label_flow": self.train_density == "label",
        }

    def shared(self, server: Slots) -> Params:
        return server["model"] | server["_even"]


def frequencies(task: Task, params: Params, labels: Tensor) -> Params:
    """A client's own p(c): the shares of its labels, 0 for absent classes."""
    return {
        name: torch.bincount(labels, minlength=len(even)).to(even) / len(labels)
        for name, even in split(params, lambda n: n in task.prior_names)[0].items()
    }
