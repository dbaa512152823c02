"""What a closed-form head is: phases of summable statistics whose outcome answers."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fedpn.core.trees import Params
from fedpn.federated.phase import Phase
from fedpn.nn.task import Model

SLOT = "head"  # of the server's state and of a client's memory; a file each of a bundle


class Seen(NamedTuple):
    """Rows as a head sees them: the inputs, and what the shared model makes of them."""

    model: Model
    params: Params  # of the shared model
    x: Tensor  # [B, ...]
    z: Tensor  # [B, D]


class Head(Phase):
    """The template: statistics of clients become the slot `head`, by which rows are classified."""

    def phases(self) -> Sequence[Phase]:
        """All phases that lead to the head, in their order."""
        return [self]

    def personal(self) -> Sequence[Phase]:
        """Phases in which each client makes the head its own, where it can be."""
        return []

    def change(self, leaves: bool) -> Phase | None:
        """How a client that comes later is added to the head, or one that leaves taken away."""
        return None

    def look(self, model: Model, params: Params, state: Params, x: Tensor, z: Tensor) -> Tensor:
        """What an observer calls."""
        return self.see(Seen(model, params, x, z), state)

    def see(self, seen: Seen, state: Params) -> Tensor:  # [B, F]
        """What the head makes of rows before it answers: the shared embedding, or features."""
        return seen.z

    def logits(self, seen: Tensor, state: Params) -> Tensor:  # [B, K]
        """How the head answers to what it sees, by its state or by a client's own."""
        raise NotImplementedError

    def likeness(self, seen: Tensor, state: Params) -> Tensor | None:  # [B]
        """The log odds that inputs look like the client's, not others', where it can tell."""
        return None
