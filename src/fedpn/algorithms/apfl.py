"""Adaptive personalised federated learning (Deng et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedpn.algorithms.twin import Twin
from fedpn.core.bounds import NonNegative, Share
from fedpn.core.gradient import gradient
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class APFL(Twin):
    """Mixes an own and a global model, v̄ = αv + (1 − α)w, and learns the mixture.

    Each step: w by ∇f(w), v by α∇f(v̄), and α by ⟨v − w, ∇f(v̄)⟩, all at the same state. The
    mixed model predicts.
    """

    alpha: Annotated[Share, "α before the first round: the own model's share of the mixture"] = 0.5
    alpha_lr: Annotated[NonNegative, "of α, which each client learns; 0: it stays"] = 0.01

    citation: ClassVar[str] = "Deng et al., 2020"

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        some = next(t for t in params.values() if t.is_floating_point())
        mix = {"alpha": some.new_full((), self.alpha)}
        return super().enroll(task, params, labels) | {"mix": mix}

    def start(self, task: Task, server: Slots, memory: Slots) -> Slots:
        return super().start(task, server, memory) | {"mix": memory["mix"]}

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        alpha, own, model = local["mix"]["alpha"], local["own"], local["model"]
        moving, still = split(_mixed(alpha, own, model), lambda n: self.trainable(task, n))
        grads, _, buffers = gradient(lambda p: task.loss(still | p, batch), moving)
        slope = torch.stack([((own[n] - model[n]) * g).sum() for n, g in grads.items()]).sum()
        mix = {"alpha": (alpha - self.alpha_lr * slope).clamp(0, 1)}
        moved = self.move_own(task, local, {n: alpha * g for n, g in grads.items()}, buffers)
        return super().step(task, server, local, batch) | moved | {"mix": mix}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        upload, kept = super().finish(task, server, memory, local)
        return upload, kept | {"mix": local["mix"]}

    def predictor(self, server: Slots, memory: Slots) -> Params:
        return _mixed(memory["mix"]["alpha"], memory["own"], server["model"])


def _mixed(alpha: Tensor, own: Params, model: Params) -> Params:
    """Integers and booleans have no mixture: they are the client's own."""

    def mix(v: Tensor, w: Tensor) -> Tensor:
        return alpha * v + (1 - alpha) * w if v.is_floating_point() else v

    return zip_with(mix, own, model)
