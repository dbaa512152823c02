"""Federated averaging with body aggregation and body update (Oh et al., 2022)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedpn.algorithms.base import FedAvg
from fedpn.core.bounds import Natural, Positive
from fedpn.core.task import Task


@dataclass(frozen=True)
class FedBABU(FedAvg):
    """Trains the body against a random head that is never trained, then fine-tunes each client.

    The paper fine-tunes for 5 epochs, the head (`part = "head"`) or everything ("all").
    """

    part: Annotated[Literal["head", "all"], "what is fine-tuned: the head, or everything"] = "head"
    adapt_epochs: Annotated[Natural, "of the fine-tuning"] = 5
    # A body that was fitted to a small random head has large outputs.
    adapt_lr: Annotated[Positive, "of the fine-tuning"] = 1e-3

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Oh et al., 2022"

    def trainable(self, task: Task, name: str) -> bool:
        return name not in task.buffer_names and name not in task.head_names

    def adapts(self, task: Task, name: str) -> bool:
        whole = self.part == "all"
        return name not in task.buffer_names and (whole or name in task.head_names)
