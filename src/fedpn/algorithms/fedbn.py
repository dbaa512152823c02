"""Federated learning on non-IID features via local batch normalisation (Li et al., 2021)."""

from dataclasses import dataclass
from typing import ClassVar

from fedpn.algorithms.base import FedAvg
from fedpn.core.errors import UserError
from fedpn.core.task import Task
from fedpn.core.trees import Params, Slots


@dataclass(frozen=True)
class FedBN(FedAvg):
    """Averages all but the normalisation layers: their parameters and statistics stay home."""

    headline: ClassVar[str] = "personal"
    citation: ClassVar[str] = "Li et al., 2021"

    def personal(self, task: Task, name: str) -> bool:
        return name in task.norm_names

    def init(self, task: Task, params: Params) -> Slots:
        if not task.norm_names:
            raise UserError(
                "fedbn keeps normalisation layers at home and this encoder has none; "
                "use --set model.norm=batch"
            )
        return super().init(task, params)

    def shared(self, server: Slots) -> None:
        return None
