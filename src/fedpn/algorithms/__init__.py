"""The name table of algorithms."""

from fedpn.algorithm import FedAvg

from .apfl import APFL
from .ditto import Ditto
from .fedavgm import FedAvgM
from .fedbabu import FedBABU
from .fedbn import FedBN
from .fedper import FedPer
from .fedpn import FedPN
from .fedprox import FedProx
from .fedrep import FedRep
from .fedrod import FedRoD
from .local import Local
from .perfedavg import PerFedAvg
from .pfedme import PFedMe
from .scaffold import Scaffold

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
