"""Fair and robust federated learning through personalisation (Li et al., 2021)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedpn.algorithms.twin import Twin
from fedpn.core.bounds import NonNegative
from fedpn.core.gradient import gradient
from fedpn.core.task import Batch, Task
from fedpn.core.trees import Slots, split


@dataclass(frozen=True)
class Ditto(Twin):
    """Trains a second, tethered model at home: v ← v − η(∇f_k(v) + λ(v − w_server))."""

    tether: Annotated[
        NonNegative, "λ, how strongly a client's own model is held to the server's"
    ] = 1.0

    citation: ClassVar[str] = "Li et al., 2021 (Ditto)"

    def step(self, task: Task, server: Slots, local: Slots, batch: Batch) -> Slots:
        moving, still = split(local["own"], lambda n: self.trainable(task, n))
        grads, _, buffers = gradient(lambda p: task.loss(still | p, batch), moving)
        origin = server["model"]
        pulled = {n: g + self.tether * (moving[n] - origin[n]) for n, g in grads.items()}
        own = self.move_own(task, local, pulled, buffers)
        return super().step(task, server, local, batch) | own
