"""APFL as PFLlib and FL-bench have it, made of ours: what is written here is what differs."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpn.algorithms.apfl import APFL
from fedpn.core.gradient import gradient
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, zip_with

DECAY = 0.02  # of α, in both


@dataclass(frozen=True)
class MixedAfterwards(APFL):
    """PFLlib's: v by ∇f(v), α by what came of both steps, and v ← v̄ once the round is over."""

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        w, v = local["model"], local["own"]
        down, value, _ = gradient(lambda p: task.loss(p, batch), w)
        own, _, _ = gradient(lambda p: task.loss(p, batch), v)
        w, v = self._along(w, down), self._along(v, own)
        mix = {"alpha": self._moved(local["mix"]["alpha"], v, w, own, down)}
        return local | {"model": w, "own": v, "mix": mix, "report": {"loss": value}}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        alpha = local["mix"]["alpha"]
        mixed = zip_with(lambda v, w: alpha * v + (1 - alpha) * w, local["own"], local["model"])
        return super().finish(task, server, memory, local | {"own": mixed})

    def predictor(self, server: Slots, memory: Slots) -> Params:
        return memory["own"]

    def _along(self, params: Params, grads: Params) -> Params:
        return zip_with(lambda p, g: p - self.lr * g, params, grads)

    def _moved(self, alpha: Tensor, v: Params, w: Params, own: Params, down: Params) -> Tensor:
        parts = [((v[n] - w[n]) * (alpha * own[n] + (1 - alpha) * down[n])).sum() for n in v]
        slope = torch.stack(parts).sum() + DECAY * alpha
        return (alpha - self.alpha_lr * slope).clamp(0, 1)


@dataclass(frozen=True)
class MixedOutputs(MixedAfterwards):
    """FL-bench's: v by the loss of mixed outputs; w moves twice by the gradient at its start."""

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        alpha, w, v = local["mix"]["alpha"], local["model"], local["own"]
        down, value, _ = gradient(lambda p: task.loss(p, batch), w)
        w = self._along(w, down)
        fixed = (1 - alpha) * task.logits(w, batch.x)

        def mixed(p: Params) -> tuple[Tensor, Params]:
            return cross_entropy(alpha * task.logits(p, batch.x) + fixed, batch.y), {}

        own, _, _ = gradient(mixed, v)
        w, v = self._along(w, down), self._along(v, own)
        mix = {"alpha": self._moved(alpha, v, w, own, down)}
        return local | {"model": w, "own": v, "mix": mix, "report": {"loss": value}}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        return APFL.finish(self, task, server, memory, local)
