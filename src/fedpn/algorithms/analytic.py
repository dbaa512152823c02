"""Federated learning in closed form."""

from dataclasses import dataclass
from typing import ClassVar

from fedpn.algorithms.base import FedAvg


@dataclass(frozen=True)
class Analytic(FedAvg):
    """No rounds at all: a ridge head on random features, from sums that clients send once.

    Equal to the regression on pooled rows, whatever the partition; see `head.kind = "ridge"`.
    """

    trains: ClassVar[bool] = False
    citation: ClassVar[str] = "this package; sums as in Fanì et al., 2024"
