"""Personalised federated learning with model-agnostic meta-learning (Fallah et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Natural, NonNegative, Positive, Share
from fedpn.core.errors import UserError
from fedpn.core.gradient import gradient
from fedpn.core.optim import Optimizer, sgd
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Params, Slots, split, zip_with


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """Learns a start from which one step fits a client: min Σ f_k(w − α∇f_k(w)).

    Each step shares its rows among distinct batches: D takes the inner step, D′ the outer
    gradient at its end. First-order MAML stops there (and diverges where clients have two or
    three classes); the Hessian-free form subtracts α·∇²f(w; D″)·g, as a difference of gradients at
    w ± δg. Before it predicts, a client takes one inner step on its own training rows.
    """

    momentum: Annotated[Share, "of the outer steps: the paper's are plain SGD"] = 0.0
    mode: Annotated[
        Literal["first-order", "hessian-free"],
        "second derivatives are left out, or come from a difference of gradients",
    ] = "hessian-free"
    inner_lr: Annotated[Positive, "α, of the inner step"] = 0.01
    delta: Annotated[Positive, "δ: hessian-free takes those gradients at w ± δg"] = 1e-3
    adapt_steps: Annotated[
        Natural, "steps on its own training rows that a client takes before it predicts"
    ] = 1
    adapt_lr: Annotated[
        NonNegative, "of the step before it predicts; 0: inner_lr, as in training"
    ] = 0.0

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Fallah et al., 2020"

    def adapts(self, task: Task, name: str) -> bool:
        return self.trainable(task, name)

    def adapt_optimizer(self) -> Optimizer:
        return sgd(self.adapt_lr or self.inner_lr)

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        w, counted = split(local["model"], lambda n: self.trainable(task, n))
        parts = _parts(batch, 2 if self.mode == "first-order" else 3)

        def slope(at: Params, part: Batch) -> tuple[Params, Tensor]:
            nonlocal counted
            grads, value, buffers = gradient(lambda p: task.loss(counted | p, part), at)
            counted = counted | buffers
            return grads, value

        inner, value = slope(w, parts[0])
        outer, _ = slope(_along(w, inner, -self.inner_lr), parts[1])
        if self.mode == "hessian-free":
            up, _ = slope(_along(w, outer, self.delta), parts[2])
            down, _ = slope(_along(w, outer, -self.delta), parts[2])
            turn = self.inner_lr / (2 * self.delta)
            outer = zip_with(lambda g, a, b: g - turn * (a - b), outer, up, down)
        moved, state = self.local_optimizer().update(w, outer, local["optimizer"])
        model = counted | moved
        return local | {"model": model, "optimizer": state, "report": {"loss": value}}


def _parts(batch: Batch, count: int) -> list[Batch]:
    """Shares a batch's rows among smaller ones."""
    if batch.y.shape[0] < count:
        raise UserError(f"perfedavg needs at least {count} rows a batch; raise train.batch")
    pairs = zip(batch.x.tensor_split(count), batch.y.tensor_split(count), strict=True)
    return [batch._replace(x=x, y=y) for x, y in pairs]


def _along(params: Params, direction: Params, rate: float) -> Params:
    return zip_with(lambda p, d: p + rate * d, params, direction)
