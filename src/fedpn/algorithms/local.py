"""Local training."""

from dataclasses import dataclass
from typing import ClassVar

from fedpn.algorithms.base import FedAvg
from fedpn.core.task import Task
from fedpn.core.trees import Slots


@dataclass(frozen=True)
class Local(FedAvg):
    """Shares nothing: every client trains alone, w_k ← w_k − η∇f_k(w_k)."""

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "the baseline of every personalised method"

    def personal(self, task: Task, name: str) -> bool:
        return True

    def shared(self, server: Slots) -> None:
        return None
