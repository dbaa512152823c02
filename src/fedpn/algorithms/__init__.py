"""The name table of algorithms."""

from dataclasses import is_dataclass

from fedpn.algorithms.analytic import Analytic
from fedpn.algorithms.apfl import APFL
from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.ditto import Ditto
from fedpn.algorithms.fedavgm import FedAvgM
from fedpn.algorithms.fedbabu import FedBABU
from fedpn.algorithms.fedbn import FedBN
from fedpn.algorithms.fedper import FedPer
from fedpn.algorithms.fedpn import FedPN
from fedpn.algorithms.fedprox import FedProx
from fedpn.algorithms.fedrep import FedRep
from fedpn.algorithms.fedrod import FedRoD
from fedpn.algorithms.local import Local
from fedpn.algorithms.perfedavg import PerFedAvg
from fedpn.algorithms.pfedme import PFedMe
from fedpn.algorithms.scaffold import Scaffold
from fedpn.core.errors import UserError
from fedpn.core.settings import find_object, one_of

ALGORITHMS: dict[str, type[FedAvg]] = {
    "fedpn": FedPN,
    "analytic": Analytic,
    "fedavg": FedAvg,
    "local": Local,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbabu": FedBABU,
    "fedbn": FedBN,
    "perfedavg": PerFedAvg,
    "apfl": APFL,
    "fedprox": FedProx,
    "fedavgm": FedAvgM,
    "scaffold": Scaffold,
    "ditto": Ditto,
    "pfedme": PFedMe,
    "fedrod": FedRoD,
}

_SOURCES: dict[type[FedAvg], str] = {}  # where algorithms of users' own were found


def find_algorithm(name: str) -> type[FedAvg]:
    """Finds an algorithm in the name table, or the user's own: module:Class or file.py:Class."""
    if ":" not in name:
        one_of("algorithm", name, list(ALGORITHMS))
        return ALGORITHMS[name]
    found = find_object("algorithm", name, "algorithm")
    if not (isinstance(found, type) and issubclass(found, FedAvg) and is_dataclass(found)):
        raise UserError(f"{name!r} is not a frozen dataclass below fedpn.FedAvg")
    if found not in ALGORITHMS.values():
        _SOURCES[found] = name
    return found


def name_of(algorithm: type[FedAvg]) -> str:
    """The name by which an algorithm is found again.

    >>> name_of(FedAvg)
    'fedavg'
    """
    names = {cls: name for name, cls in ALGORITHMS.items()} | _SOURCES
    return names.get(algorithm, f"{algorithm.__module__}:{algorithm.__qualname__}")


def section_of(algorithm: type[FedAvg]) -> str:
    """The section of an algorithm's hyperparameters.

    >>> section_of(FedAvg)
    'fedavg'
    """
    names = {cls: name for name, cls in ALGORITHMS.items()}
    return names.get(algorithm, algorithm.__name__.lower())
