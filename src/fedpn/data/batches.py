"""Which rows each local step uses, drawn ahead from (seed, round, client)."""

import math

import numpy as np
import torch

from fedpn.core.task import Plan
from fedpn.data.dataset import Array


def steps_of(rows: int, batch: int, epochs: int, least: int = 0) -> int:
    """Counts the steps of some epochs, but at least so many.

    >>> steps_of(rows=100, batch=64, epochs=10), steps_of(rows=100, batch=64, epochs=1, least=9)
    (20, 9)
    """
    return max(epochs * math.ceil(rows / batch), least)


def draw(rows: Array, steps: int, batch: int, rng: np.random.Generator) -> Array:
    """Goes through the rows in shuffled order, epoch after epoch: [steps, batch].

    Batches are always full: a short last batch of an epoch is filled from its beginning.
    """
    per_epoch = math.ceil(len(rows) / batch)
    epochs = [
        np.resize(rng.permutation(rows), (per_epoch, batch))
        for _ in range(max(math.ceil(steps / per_epoch), 1))
    ]
    return np.concatenate(epochs)[:steps]


def evened(rows: Array, labels: Array) -> Array:
    """Rows of which rare classes' are repeated, so that all classes are about equally many.

    >>> evened(np.array([4, 5, 6]), np.array([0, 0, 1])).tolist()
    [4, 5, 6, 6]
    """
    classes = [rows[labels == label] for label in np.unique(labels)]
    most = max(map(len, classes))
    return np.sort(np.concatenate([np.resize(part, most) for part in classes]))


def stack_plans(plans: list[Array]) -> Plan:
    """Puts the clients' plans side by side; whoever has fewer steps idles at the end."""
    most = max(len(plan) for plan in plans)
    index = np.full((len(plans), most, plans[0].shape[1]), -1, dtype=np.int64)
    progress = np.ones((len(plans), most), dtype=np.float32)
    for i, plan in enumerate(plans):
        index[i, : len(plan)] = plan
        progress[i, : len(plan)] = np.arange(len(plan)) / len(plan)
    return Plan(torch.from_numpy(index), torch.from_numpy(progress))
