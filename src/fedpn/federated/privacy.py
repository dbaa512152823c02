"""The (ε, δ) account of a federation: what noise protects, and what lies outside of it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.training import Train

WHOM = {"client": "each client, with all of its rows", "row": "each row"}
ALWAYS = (
    "the figures of the evaluation and the clients' mean losses",
    "what stays with each client: its own model, thresholds and rule",
)
COLUMNS = "exact sums and counts, by which a table's columns are prepared and normalised"
UPLOADS = "what the server itself is sent, to which it adds the noise"


@dataclass(frozen=True)
class Account:
    """What is promised to whom, at a δ; of what is not covered it says so."""

    unit: str  # whom a replaced one stands for: client or row
    epsilon: float
    delta: float
    outside: tuple[str, ...]

    def words(self) -> str:
        """
        >>> Account("row", math.inf, 1e-5, ("figures",)).words()[:44]
        'Differential privacy: nothing is promised, f'
        """
        if self.epsilon == math.inf:
            return (
                "Differential privacy: nothing is promised, for there is no noise, or it was drawn "
                "from the run's seed and anybody can take it away again."
            )
        return (
            f"Differential privacy: ε = {self.epsilon:.3g} at δ = {self.delta:g} for "
            f"{WHOM[self.unit]}, in all that the shared model is made of. Not covered: "
            f"{'; '.join(self.outside)}."
        )

    def tree(self) -> dict[str, Any]:
        """As metrics keep it; no ε where nothing is promised."""
        epsilon = None if self.epsilon == math.inf else self.epsilon
        facts = {"epsilon": epsilon, "delta": self.delta, "unit": self.unit}
        return facts | {"outside": list(self.outside), "words": self.words()}


def of_means(settings: AggregationSettings, times: int, is_table: bool) -> Account:
    """Of private means; no client takes part more than so many times.

    Who joins a round is drawn from the run's seed, which is no secret: nothing is gained by
    drawing. A client is the unit that is replaced; that moves the sum of clipped moves by up to
    twice the clip.
    """
    outside = (*ALWAYS, UPLOADS, *([COLUMNS] if is_table else []))
    noise = 0.0 if settings.repeatable else settings.noise / 2
    return Account("client", spent(noise, settings.delta, times), settings.delta, outside)


def of_sums(noise: float, delta: float, releases: int) -> Account:
    """Of a head's noised sums; one row is replaced."""
    return Account("row", spent(noise, delta, releases), delta, (*ALWAYS, UPLOADS))


def spent(noise: float, delta: float, releases: int) -> float:
    """The ε of Gaussian mechanisms, each with noise in units of what one can change, composed.

    Unsampled ones are together one with noise / √releases, whose ε is exact (Balle & Wang, 2018).

    >>> round(spent(noise=1.0, delta=1e-5, releases=1), 4)
    4.3772
    """
    if not releases:
        return 0.0
    if not noise:
        return math.inf
    mu = math.sqrt(releases) / noise
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        low, high = high, 2 * high
    if delta_of(0.0, mu) <= delta:
        return 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


def delta_of(epsilon: float, mu: float) -> float:
    """The least δ at which a Gaussian mechanism, whose means lie μ apart, is (ε, δ)-private.

    Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), by scaled tails: e^ε would overflow.
    """
    near, far = (torch.tensor(epsilon / mu + s * mu / 2, dtype=torch.float64) for s in (-1, 1))
    scale = torch.exp(-near.square() / 2) / 2
    second = scale * torch.special.erfcx(far / math.sqrt(2))
    if near < 0:
        return float(torch.special.ndtr(-near) - second)
    return float(scale * torch.special.erfcx(near / math.sqrt(2)) - second)


def most_rounds(phase: Train, clients: int) -> int:
    """In how many rounds the client takes part that is drawn most often."""
    counts = np.zeros(clients, np.int64)
    for round_ in range(phase.rounds):
        counts[phase.joining(clients, round_)] += 1
    return int(counts.max(initial=0))
