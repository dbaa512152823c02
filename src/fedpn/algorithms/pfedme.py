"""Personalised federated learning with Moreau envelopes (Dinh et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Bounds, Count, Positive, Share
from fedpn.core.gradient import gradient
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """Personal θ = argmin f_k(θ) + λ/2·‖θ − w‖²; w ← w − ηλ(w − θ); server w ← (1−β)w + β·mean.

    Each step minimises on its batch by a few gradient steps, which go on from the last θ.
    """

    momentum: Annotated[Share, "of the steps of w: the paper's are plain SGD"] = 0.0
    tether: Annotated[Positive, "λ, how strongly θ, a client's own model, is held to w"] = 15.0
    inner_steps: Annotated[Count, "gradient steps towards θ on each batch"] = 5
    inner_lr: Annotated[Positive, "of those steps"] = 0.01
    mix: Annotated[float, Bounds(above=0, high=2), "β, of the server's step to the mean"] = 1.0

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Dinh et al., 2020"

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        return super().enroll(task, params, labels) | {"own": params}

    def start(self, task: Task, server: Slots, memory: Slots) -> Slots:
        return super().start(task, server, memory) | {"own": server["model"]}

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        w, _ = split(local["model"], lambda n: self.trainable(task, n))
        theta, counted = split(local["own"], lambda n: self.trainable(task, n))
        for _ in range(self.inner_steps):
            grads, value, buffers = gradient(lambda p, c=counted: task.loss(c | p, batch), theta)  # type: ignore[misc]
            counted = counted | buffers
            theta = {
                n: t - self.inner_lr * (grads[n] + self.tether * (t - w[n]))
                for n, t in theta.items()
            }
        pull = {n: self.tether * (p - theta[n]) for n, p in w.items()}
        moved, state = self.local_optimizer().update(w, pull, local["optimizer"])
        return {
            "model": moved | counted,
            "optimizer": state,
            "own": theta | counted,
            "report": {"loss": value},
        }

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        upload, kept = super().finish(task, server, memory, local)
        return upload, kept | {"own": local["own"]}

    def aggregate(self, server: Slots, mean: Slots, share: float) -> Slots:
        blend = zip_with(
            lambda w, m: (1 - self.mix) * w + self.mix * m, server["model"], mean["model"]
        )
        return server | mean | {"model": blend}

    def owns(self, task: Task, name: str) -> bool:
        return True

    def predictor(self, server: Slots, memory: Slots) -> Params:
        return memory["own"]
