"""Means of stacked uploads."""

import torch
from torch import Tensor

from .trees import Slots, map_slots


def weighted_mean(uploads: Slots, weights: Tensor) -> Slots:
    """Averages over the leading (client) axis.

    >>> uploads = {"model": {"w": torch.tensor([1.0, 2.0])}}
    >>> weighted_mean(uploads, torch.tensor([1.0, 3.0]))
    {'model': {'w': tensor(1.7500)}}
    """
    weights = weights / weights.sum()
    return map_slots(lambda t: torch.tensordot(weights.to(t), t, 1), uploads)
