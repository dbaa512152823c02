"""Some of a set's rows, where all of them would take too long."""

from dataclasses import replace

import numpy as np

from fedpn.core import seeds
from fedpn.data.dataset import Dataset


def take_some(dataset: Dataset, count: int, seed: int) -> Dataset:
    """So many rows, drawn by the seed, of each class and client nearly as many as its share is.

    >>> rows = np.arange(100)
    >>> some = take_some(Dataset("a", rows[:, None], rows % 4, ("a", "b", "c", "d")), 20, 0)
    >>> len(some), np.bincount(some.y).tolist()
    (20, [5, 5, 5, 5])
    """
    strata = (
        dataset.y if dataset.client is None else dataset.y + dataset.client * len(dataset.classes)
    )
    order = seeds.stream("limit", seed).permutation(len(dataset))
    order = order[np.argsort(strata[order], kind="stable")]
    # Evenly along rows that are sorted by stratum: each gives its share, give or take one.
    places = ((np.arange(count) + 0.5) * len(dataset) / count).astype(np.int64)
    rows = np.sort(order[places])
    owner = None if dataset.client is None else dataset.client[rows]
    group = None if dataset.group is None else dataset.group[rows]
    remark = f"{count} of {len(dataset)} rows are taken (data.limit)"
    return replace(
        dataset,
        x=dataset.x[rows],
        y=dataset.y[rows],
        client=owner,
        group=group,
        remarks=(*dataset.remarks, remark),
    )
