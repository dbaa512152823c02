"""What an algorithm may know: rows, plans of batches, and the model as a `Task`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedpn.core.trees import Params


class Data(NamedTuple):
    x: Tensor  # [N, ...], raw bytes of images or features
    y: Tensor  # [N]


class Plan(NamedTuple):
    """The rows that each local step uses; a step of -1 is idle."""

    rows: Tensor  # [steps, batch]
    progress: Tensor  # [steps], from 0 at the first step towards 1, over the client's own steps


class Batch(NamedTuple):
    x: Tensor  # [B, ...]
    y: Tensor  # [B]
    progress: Tensor  # []
    active: Tensor  # [], whether this step is one of the client's own


@dataclass(frozen=True)
class Task:
    """All that an algorithm may know of the model."""

    loss: Callable[[Params, Batch], tuple[Tensor, Params]]  # the value and the new buffers
    logits: Callable[[Params, Tensor], Tensor]
    head_names: frozenset[str]  # all that stands above the encoder
    norm_names: frozenset[str]  # of normalisation layers: parameters and statistics
    encoder_names: frozenset[str] = frozenset()
    buffer_names: frozenset[str] = frozenset()  # counted, not trained
    prior_names: frozenset[str] = frozenset()  # class frequencies, where a network weighs by them
    own_head_names: frozenset[str] = frozenset()  # a second head, where a network has one
