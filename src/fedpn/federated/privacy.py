"""The (ε, δ) account of a federation: what noise protects, and what lies outside of it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpn.core.errors import UserError
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
    """The ε of Gaussian mechanisms, each with noise in units of what one can change, composed."""
    if not releases:
        return 0.0
    if not noise:
        return math.inf
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise UserError("accounts of privacy need an extra: pip install 'fedpn[privacy]'") from None
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(dp_accounting.GaussianDpEvent(noise), releases)
    return float(accountant.get_epsilon(delta))


def most_rounds(phase: Train, clients: int) -> int:
    """In how many rounds the client takes part that is drawn most often."""
    counts = np.zeros(clients, np.int64)
    for round_ in range(phase.rounds):
        counts[phase.joining(clients, round_)] += 1
    return int(counts.max(initial=0))
