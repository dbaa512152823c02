"""Federated learning with personalisation layers (Arivazhagan et al., 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from fedpn.algorithms.base import FedAvg
from fedpn.core.task import Task
from fedpn.core.trees import Slots


@dataclass(frozen=True)
class FedPer(FedAvg):
    """Averages the body; the head never leaves its client: w_k = (body, head_k)."""

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Arivazhagan et al., 2019"

    def personal(self, task: Task, name: str) -> bool:
        return name in task.head_names

    def shared(self, server: Slots) -> None:
        return None
