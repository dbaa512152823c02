"""The name table of algorithms."""

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

ALGORITHMS: dict[str, type[FedAvg]] = {
    "fedpn": FedPN,
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
