"""What a federated algorithm is: FedAvg, the template of every other."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakSet

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

from fedpn.core.bounds import Natural, NonNegative, Positive, Share
from fedpn.core.errors import UserError
from fedpn.core.gradient import gradient
from fedpn.core.optim import OPTIMIZERS, Optimizer, owner
from fedpn.core.task import Batch, Data, Plan, Task
from fedpn.core.trees import Params, Slots, in_types_of, map_slots, split, zip_with


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging (McMahan et al., 2017): w ← Σ_k (n_k / n) · w_k.

    Fields are hyperparameters and methods are pure: state is what they take and return. So one
    definition is mapped over stacked clients in simulation and called on one client on Flower.
    """

    optimizer: Annotated[Literal["sgd", "adam"], "of local steps"] = "sgd"
    lr: Annotated[Positive, "of local steps"] = 0.01
    momentum: Annotated[Share, "of SGD; of Adam, its first"] = 0.9
    weight_decay: Annotated[
        NonNegative, "an L2 penalty: this times the parameters is added to gradients"
    ] = 0.0
    optimizer_state: Annotated[
        Literal["average", "reset", "keep"], "what becomes of it between rounds"
    ] = "average"
    adapt_epochs: Annotated[Natural, "of the personal stage"] = 0
    adapt_steps: Annotated[Natural, "at least as many, where the epochs give fewer"] = 0
    adapt_lr: Annotated[Positive, "of the personal stage"] = 0.01

    network: ClassVar[str] = "classifier"  # or "posterior", "two-headed"
    trains: ClassVar[bool] = True  # whether there are rounds of local steps
    headline: ClassVar[str] = "global"
    citation: ClassVar[str] = "McMahan et al., 2017"

    def personal(self, task: Task, name: str) -> bool:
        """Tells whether an entry never leaves its client."""
        return False

    def trainable(self, task: Task, name: str) -> bool:
        """Tells whether local steps move an entry by its gradient."""
        return name not in task.buffer_names

    def adapts(self, task: Task, name: str) -> bool:
        """Tells whether the personal stage moves an entry."""
        return False

    def owns(self, task: Task, name: str) -> bool:
        """Tells whether a client predicts with an entry of its own, not with the federation's."""
        return self.personal(task, name) or self.adapts(task, name)

    def init(self, task: Task, params: Params) -> Slots:
        """Builds the server's state. Slots named `_like_this` are never sent."""
        shared = split(params, lambda n: self.personal(task, n))[1]
        return {"model": shared} | self._averaged(task, self._fresh_optimizer(task, params))

    def enroll(self, task: Task, params: Params, labels: Tensor) -> Slots:
        """Builds what a client remembers before its first round."""
        own = split(params, lambda n: self.personal(task, n))[0]
        return {"model": own} | self._kept(task, self._fresh_optimizer(task, params))

    def start(self, task: Task, server: Slots, memory: Slots) -> Slots:
        """Builds the state that local steps transform."""
        model = server["model"] | memory["model"]
        optimizer = self._fresh_optimizer(task, model)
        remembered = server.get("optimizer", {}) | memory.get("optimizer", {})
        return {"model": model, "optimizer": optimizer | remembered}

    def objective(
        self, task: Task, params: Params, server: Slots, batch: Batch
    ) -> tuple[Tensor, Params]:
        """What local steps minimise, and the new buffers."""
        return task.loss(params, batch)

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        """Takes one local step; the slot `report` holds the loss for the history."""
        moving, still = split(local["model"], lambda n: self.trainable(task, n))
        grads, value, buffers = gradient(
            lambda p: self.objective(task, still | p, server, batch), moving
        )
        moved, optimizer = self.local_optimizer().update(moving, grads, local["optimizer"])
        model = still | moved | buffers
        return local | {"model": model, "optimizer": optimizer, "report": {"loss": value}}

    def finish(self, task: Task, server: Slots, memory: Slots, local: Slots) -> tuple[Slots, Slots]:
        """Separates what is uploaded from what is remembered."""
        own, sent = split(local["model"], lambda n: self.personal(task, n))
        upload = {"model": sent} | self._averaged(task, local["optimizer"])
        return upload, memory | {"model": own} | self._kept(task, local["optimizer"])

    def aggregate(self, server: Slots, mean: Slots, share: float) -> Slots:
        """Updates the server, given the mean upload of a share of the clients."""
        return server | mean

    def adapt(
        self, task: Task, server: Slots, memory: Slots, fresh: Params, batches: Iterable[Batch]
    ) -> Slots:
        """Fits the client's model to its own training rows before it predicts.

        `fresh` are the parameters with which the run began.
        """
        model = fit(
            task,
            self.predictor(server, memory),
            lambda n: self.adapts(task, n),
            self.adapt_optimizer(),
            batches,
        )
        own = split(model, lambda n: self.adapts(task, n) or self.personal(task, n))[0]
        return memory | {"model": own}

    def predictor(self, server: Slots, memory: Slots) -> Params:
        """Selects the parameters with which a client predicts."""
        return server["model"] | memory["model"]

    def shared(self, server: Slots) -> Params | None:
        """Selects the global model, where there is a whole one."""
        return server["model"]

    def loss_options(self) -> dict[str, Any] | None:
        """The name and options of a posterior network's loss."""
        return None

    def local_optimizer(self) -> Optimizer:
        return OPTIMIZERS[self.optimizer](self.lr, self.momentum, self.weight_decay)

    def adapt_optimizer(self) -> Optimizer:
        return OPTIMIZERS["sgd"](self.adapt_lr, self.momentum, self.weight_decay)

    def _fresh_optimizer(self, task: Task, model: Params) -> Params:
        return self.local_optimizer().init(split(model, lambda n: self.trainable(task, n))[0])

    def _averaged(self, task: Task, optimizer: Params) -> Slots:
        """The optimiser state that goes through the server: never of what is personal."""
        if self.optimizer_state != "average":
            return {}
        return {"optimizer": split(optimizer, lambda n: self.personal(task, owner(n)))[1]}

    def _kept(self, task: Task, optimizer: Params) -> Slots:
        """The optimiser state that stays with the client from round to round."""
        keep = {"average": lambda n: self.personal(task, owner(n)), "keep": lambda n: True}
        if self.optimizer_state == "reset":
            return {}
        return {"optimizer": split(optimizer, keep[self.optimizer_state])[0]}


def where(active: Tensor, new: Params, old: Params) -> Params:
    """Takes the step, or leaves an idle client as it was."""
    return zip_with(lambda a, b: torch.where(active, a, b), new, old)


def fit(
    task: Task,
    params: Params,
    moving: Callable[[str], bool],
    optimizer: Optimizer,
    batches: Iterable[Batch],
) -> Params:
    """Minimises the task's plain loss over the named entries."""
    moved, still = split(params, moving)
    state = optimizer.init(moved)
    for batch in batches:
        grads, _, _ = gradient(lambda p, b=batch: task.loss(still | p, b), moved)  # type: ignore[misc]
        new, new_state = optimizer.update(moved, grads, state)
        moved, state = where(batch.active, new, moved), where(batch.active, new_state, state)
    return still | moved


def batches(data: Data, plan: Plan) -> Iterator[Batch]:
    """Gathers the rows of one step after the other."""
    for index, progress in zip(plan.rows, plan.progress, strict=True):
        yield Batch(data.x[index], data.y[index], progress, index[0] >= 0)


def train(
    algorithm: FedAvg,
    task: Task,
    data: Data,
    server: Slots,
    memory: Slots,
    plan: Plan,
    idle: bool = True,
) -> tuple[Slots, Slots, Tensor]:
    """Plays one client's part of a round: Flower calls it, the simulator maps it.

    Returns the upload, the new memory and the mean loss over the client's steps. `idle` tells
    whether the plan (of any client mapped here) may have idle steps.
    """
    local = algorithm.start(task, server, memory)
    losses, count = [], plan.rows[:, 0] >= 0
    for batch in batches(data, plan):
        new = algorithm.step(task, server, local, batch)
        losses.append(new.pop("report")["loss"])
        # A client with less data than others idles on padded steps.
        local = _unless_idle(batch.active, new, local) if idle else new
    upload, kept = algorithm.finish(task, server, memory, local)
    upload, kept = in_types_of(upload, server), in_types_of(kept, memory)
    # An idle step saw a row of somebody else's: its loss may be anything.
    mean = torch.where(count, torch.stack(losses), 0).sum() / count.sum().clamp(min=1)
    return upload, kept, mean


def _unless_idle(active: Tensor, new: Slots, old: Slots) -> Slots:
    return map_slots(lambda a, b: torch.where(active, a, b), new, old)


# What torch.func says of operations that it cannot map over stacked clients.
UNMAPPABLE = re.compile(r"^vmap: It looks like|Batching rule not implemented")
ONE_BY_ONE: WeakSet[Task] = WeakSet()  # models that were found to have such an operation


def mapped(task: Task, client: Callable[[Slots, Plan], Any], memories: Slots, plan: Plan) -> Any:
    """Apply a function of one client to stacked clients.

    A single client is spared the map. So is a model with an operation that has no mapped form, such
    as an LSTM or `.item()`: its clients are played one after the other.
    """
    count = len(plan.rows)
    if count > 1 and task not in ONE_BY_ONE:
        try:
            return vmap(client)(memories, plan)
        except RuntimeError as error:
            if "randomness" in str(error):
                raise UserError(
                    "the model or the algorithm draws random numbers in its steps, which clients "
                    "could not repeat; take that out"
                ) from error
            if not UNMAPPABLE.search(str(error)):
                raise
            ONE_BY_ONE.add(task)
    results = [
        client(map_slots(lambda t, k=k: t[k], memories), Plan(*(t[k] for t in plan)))
        for k in range(count)
    ]
    return tree_map(lambda *parts: torch.stack(parts), *results)
