"""The settings of federated work."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpn.core.bounds import (
    AutoCount,
    Bounds,
    Count,
    Natural,
    NonNegative,
    Positive,
    Seed,
    Share,
    SomeShare,
    Width,
)


@dataclass(frozen=True)
class TrainSettings:
    """A client's work in a round."""

    steps: Annotated[Natural, "batches a round"] = 10
    epochs: Annotated[Natural, "instead of steps, where set"] = 0
    batch: Annotated[Count, "rows"] = 64
    join: Annotated[SomeShare, "the share of clients in a round"] = 1.0
    balance: Annotated[
        bool, "whether each client's batches have its classes evenly, so that rare ones are learned"
    ] = False
    late: Annotated[
        Natural, "rounds that a client plays by itself that comes after them, where it learns so"
    ] = 10
    least: Annotated[
        Natural, "training rows for a client to adapt its model to; with fewer it stays as it is"
    ] = 20


@dataclass(frozen=True)
class FaultSettings:
    """What goes wrong in a simulated federation, and what is done about it."""

    dropout: Annotated[Share, "the chance of a client to vanish in the middle of a round"] = 0.0
    stragglers: Annotated[Share, "the chance of a client to do only some of its steps"] = 0.0
    max_norm: Annotated[
        NonNegative, "longer moves of the model are refused; 0: any length will do"
    ] = 0.0
    attack: Annotated[
        Literal["none", "label_flip", "sign_flip", "scale", "noise", "backdoor"],
        "what clients do that mean harm, in simulations",
    ] = "none"
    attackers: Annotated[Share, "the share of clients that mean harm, where they do"] = 0.2
    strength: Annotated[
        Positive, "how many times as far attackers move, under `scale` and `noise`"
    ] = 10.0
    patience: Annotated[Count, "rounds in a row without a valid upload before the run ends"] = 3


@dataclass(frozen=True)
class HeadSettings:
    """How the global model answers."""

    kind: Annotated[
        str, "trained by the rounds, or in closed form after them: ridge, means, or file.py:Class"
    ] = "trained"
    features: Annotated[
        Literal["auto", "inputs", "encoder", "inputs+encoder"],
        "what `ridge` sees: random patch filters of images or columns of tables (inputs), the "
        "encoder's layers, or both; auto: both, without rounds inputs",
    ] = "auto"
    filters: Annotated[Width, "random filters of `patches`"] = 100
    fourier: Annotated[
        int, Bounds(low=0, high=2**16), "random Fourier features of encoder's layers or columns"
    ] = 1000
    noise: Annotated[
        NonNegative,
        "on the sums of `ridge`, in units of what one row can change; 0: none. Images without "
        "rounds only",
    ] = 0.0
    clip: Annotated[Positive, "with noise: the length to which a row's features are cut"] = 4.0
    seed: Annotated[Seed, "of filters and frequencies; the same for all runs that compare"] = 0


@dataclass(frozen=True)
class EngineSettings:
    """How the work is done on this machine: figures do not depend on it, and it may change."""

    cohort: Annotated[
        AutoCount, 'clients stacked at once; 0 or "auto": by the model\'s size and work'
    ] = 0
    device: Annotated[str, "cpu, cuda, mps; auto: a GPU where there is one"] = "auto"
    threads: Annotated[AutoCount, 'of PyTorch; 0 or "auto": its own choice'] = 0
