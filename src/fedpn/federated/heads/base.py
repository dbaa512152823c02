"""What a closed-form head is: a phase of summable statistics whose outcome answers."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fedpn.core.trees import Params
from fedpn.federated.phase import Phase
from fedpn.nn.task import Model

SLOT = "head"  # of the server's state, and its file of a bundle


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

    def answer(self, model: Model, params: Params, state: Params, x: Tensor, z: Tensor) -> Tensor:
        """What an observer calls."""
        return self.logits(Seen(model, params, x, z), state)

    def logits(self, seen: Seen, state: Params) -> Tensor:  # [B, K]
        """How the head answers, by its state."""
        raise NotImplementedError
