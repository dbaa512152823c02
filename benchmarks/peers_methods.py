"""Which class of theirs is which method of ours, and how both are told the same."""

from dataclasses import dataclass, field
from typing import Any

Tree = dict[str, Any]
RATE = 0.01
Deal = tuple[float, ...]  # where the parts of a round's batches begin and end
WHOLE: Deal = (0.0, 1.0)
HALVES: Deal = (0.0, 0.5, 1.0)
EVENLY = "theirs weighs clients evenly, ours by their rows"
DECAY = "theirs has a weight decay of 0.001 in the inner steps"


@dataclass(frozen=True)
class Peer:
    """A class of theirs, its options, and why it differs from ours.

    The last three fields take that difference away: clients of equally many rows, a repair of
    their class (`mends` of the driver), or our algorithm with their way.
    """

    module: str
    name: str
    options: Tree = field(default_factory=dict)
    deal: Deal = WHOLE  # of which each pass takes a part
    differs: str = ""
    even: bool = False
    mend: bool = False
    ours: str = ""


@dataclass(frozen=True)
class Method:
    """Settings of ours that say what theirs does, and their classes."""

    pfllib: Peer
    flbench: Peer
    settings: Tree = field(default_factory=dict)


METHODS = {
    "fedavg": Method(Peer("avg", "FedAvg"), Peer("fedavg", "FedAvgServer")),
    "scaffold": Method(
        Peer("scaffold", "SCAFFOLD", differs=EVENLY, even=True),
        Peer(
            "scaffold",
            "SCAFFOLDServer",
            {"global_lr": 1.0},
            differs="theirs forgets each client's control variate after the round, so that it "
            f"stays 0; and {EVENLY}",
            even=True,
            mend=True,
        ),
    ),
    "perfedavg": Method(
        Peer("peravg", "PerAvg", deal=HALVES),  # theirs has two passes a round
        Peer(
            "perfedavg",
            "PerFedAvgServer",
            {"version": "fo", "beta": RATE, "delta": 1e-3},
            differs=EVENLY,
            even=True,
        ),
        {"mode": "first-order", "inner_lr": RATE, "adapt_steps": 1},
    ),
    "pfedme": Method(
        Peer(
            "pFedMe",
            "pFedMe",
            {"lamda": 15.0, "K": 5, "p_learning_rate": RATE, "beta": 1.0},
            differs=DECAY,
            mend=True,
        ),
        Peer(
            "pfedme",
            "pFedMeServer",
            {"beta": 1.0, "lamda": 15.0, "pers_lr": RATE, "mu": 1e-3, "k": 5},
            differs=DECAY,
            mend=True,
        ),
        {"tether": 15.0, "inner_steps": 5, "inner_lr": RATE, "mix": 1.0},
    ),
    "ditto": Method(
        Peer("ditto", "Ditto", {"mu": 1.0, "plocal_epochs": 1}),
        Peer("ditto", "DittoServer", {"pers_epoch": 1, "lamda": 1.0}),
        {"tether": 1.0},
    ),
    "apfl": Method(
        Peer(
            "apfl",
            "APFL",
            {"alpha": 0.5},
            differs="theirs steps the own model by its own gradient and mixes once, after the "
            "round, into the own model itself; α falls by 0.02α more",
            ours="peers_apfl.py:MixedAfterwards",
        ),
        Peer(
            "apfl",
            "APFLServer",
            {"alpha": 0.5, "adaptive_alpha": 1},
            differs="theirs mixes outputs in place of weights, and each batch moves the global "
            "model twice by one gradient, which is not cleared; α falls by 0.02α more",
            ours="peers_apfl.py:MixedOutputs",
        ),
        {"alpha": 0.5, "alpha_lr": RATE},
    ),
    "fedrep": Method(
        Peer("rep", "FedRep", {"plocal_epochs": 1}, HALVES),
        Peer("fedrep", "FedRepServer", {"train_body_epoch": 1}, HALVES),
        {"head_share": 0.5},
    ),
    "fedbabu": Method(
        Peer("babu", "FedBABU", {"fine_tuning_epochs": 1}),  # one pass over our five
        Peer("fedbabu", "FedBabuServer"),
        {"part": "all", "adapt_epochs": 5, "adapt_lr": RATE},
    ),
}
