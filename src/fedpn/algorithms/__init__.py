"""The name table of algorithms."""

from fedpn.algorithm import FedAvg

from .fedpn import FedPN

ALGORITHMS: dict[str, type[FedAvg]] = {"fedpn": FedPN, "fedavg": FedAvg}
