"""Which class of PFLlib is which method of ours, and how the two are told the same."""

from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]
RATE = 0.01
WHOLE, HALVES = (0.0, 1.0), (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Peer:
    """A method of ours and the class of theirs; how they are told the same."""

    module: str
    name: str
    ours: Tree = field(default_factory=dict)
    theirs: Tree = field(default_factory=dict)
    deal: tuple[float, ...] = WHOLE  # which parts of a round's batches each pass takes
    differs: str = ""


PEERS = {
    "fedavg": Peer("avg", "FedAvg"),
    "scaffold": Peer(
        "scaffold", "SCAFFOLD", differs="theirs weighs clients evenly, ours by their rows"
    ),
    "perfedavg": Peer(
        "peravg",
        "PerAvg",
        {"mode": "first-order", "inner_lr": RATE, "adapt_steps": 1},
        deal=HALVES,  # theirs has two passes a round
    ),
    "pfedme": Peer(
        "pFedMe",
        "pFedMe",
        {"tether": 15.0, "inner_steps": 5, "inner_lr": RATE, "mix": 1.0},
        {"lamda": 15.0, "K": 5, "p_learning_rate": RATE, "beta": 1.0},
        differs="theirs has a weight decay of 0.001 in the inner steps",
    ),
    "ditto": Peer("ditto", "Ditto", {"tether": 1.0}, {"mu": 1.0, "plocal_epochs": 1}),
    "apfl": Peer(
        "apfl",
        "APFL",
        {"alpha": 0.5, "alpha_lr": RATE},
        {"alpha": 0.5},
        differs="theirs steps at the own model and mixes after the round, ours at the mixture",
    ),
    "fedrep": Peer("rep", "FedRep", {"head_share": 0.5}, {"plocal_epochs": 1}, HALVES),
    "fedbabu": Peer(
        "babu",
        "FedBABU",
        {"part": "all", "adapt_epochs": 5, "adapt_lr": RATE},
        {"fine_tuning_epochs": 1},  # one pass over the batches of our five
    ),
}
