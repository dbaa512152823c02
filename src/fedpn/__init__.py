"""Personalised federated learning that knows when it does not know."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpn.algorithms import ALGORITHMS as ALGORITHMS
    from fedpn.algorithms.base import FedAvg as FedAvg
    from fedpn.algorithms.fedpn import FedPN as FedPN
    from fedpn.core.errors import UserError as UserError
    from fedpn.data.sources.own import open_dataset as open_dataset
    from fedpn.runs.api import run as run
    from fedpn.runs.config import Config as Config
    from fedpn.runs.result import Run as Run
    from fedpn.runs.result import open as open
    from fedpn.runs.studies.comparison import compare as compare
    from fedpn.runs.studies.sweep import sweep as sweep
    from fedpn.serving.predict import load as load

__version__ = "0.2.0"

# Loaded on first use: `import fedpn` stays quick.
_HOMES = {
    "ALGORITHMS": "fedpn.algorithms",
    "Config": "fedpn.runs.config",
    "FedAvg": "fedpn.algorithms.base",
    "FedPN": "fedpn.algorithms.fedpn",
    "UserError": "fedpn.core.errors",
    "compare": "fedpn.runs.studies.comparison",
    "load": "fedpn.serving.predict",
    "open": "fedpn.runs.result",
    "open_dataset": "fedpn.data.sources.own",
    "Run": "fedpn.runs.result",
    "run": "fedpn.runs.api",
    "sweep": "fedpn.runs.studies.sweep",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedpn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
