"""Figures of many clients, or seeds, brought to one."""

import math
from typing import Any

import numpy as np

Tree = dict[str, Any]
SETS = ("ind", "ood", "mix")


def summarise(trees: list[Tree], over: Any = np.mean) -> Tree:
    """Brings the figures of many clients (or seeds) to one; those that are null do not count.

    >>> summarise([{"a": {"b": 1.0}}, {"a": {"b": 3.0}}, {"a": {"b": None}}])
    {'a': {'b': 2.0}}
    """
    merged: Tree = {}
    for key, value in trees[0].items():
        column = [tree[key] for tree in trees]
        if isinstance(value, dict):
            merged[key] = summarise(column, over)
        else:
            there = [v for v in column if v is not None]
            merged[key] = float(over(there)) if there else None
    return merged


def standard_error(values: list[float]) -> float:
    """Of a mean over seeds.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, 0.0)
    """
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
