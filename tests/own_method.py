"""A method of somebody's own: a file, and a helper beside it that it imports."""

import sys

METHOD = """
from dataclasses import dataclass

import fedpn
from pace import slowed


@dataclass(frozen=True)
class Mine(fedpn.FedAvg):
    def objective(self, task, params, server, batch):
        value, buffers = task.loss(params, batch)
        return slowed(value), buffers
"""
PACE = "def slowed(value):\n    return value / 2\n"


def write(place):
    (place / "mine.py").write_text(METHOD)
    (place / "pace.py").write_text(PACE)


def forgotten():
    """As in a new process."""
    for name in ("mine", "pace"):
        sys.modules.pop(name, None)
