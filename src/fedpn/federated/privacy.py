"""The (ε, δ) account of a federation with clipped and noised means."""

from typing import Any

from fedpn.core.errors import UserError
from fedpn.federated.aggregation import AggregationSettings


def spent_on_sums(noise: float, delta: float, releases: int) -> float:
    """How much privacy a head's sums have cost each row, at δ; one row is replaced.

    Gaussian mechanisms, each with noise in units of what one row can change, composed.
    """
    dp_accounting, rdp = _accounting()
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(dp_accounting.GaussianDpEvent(noise), releases)
    return float(accountant.get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise UserError("accounts of privacy need an extra: pip install 'fedpn[privacy]'") from None
    return dp_accounting, rdp


def spent(config: AggregationSettings, joined: int, clients: int, rounds: int) -> float | None:
    """How much privacy some rounds have cost each client, at the config's δ.

    Accounted by Rényi divergences for Gaussian noise on a sample without replacement; a client is
    the unit that is replaced. None without noise: nothing is promised then.
    """
    if not config.noise or not rounds:
        return None
    dp_accounting, rdp = _accounting()
    # Replacing one client moves the sum of clipped moves by up to twice the clip.
    noise = dp_accounting.GaussianDpEvent(config.noise / 2)
    event = dp_accounting.SampledWithoutReplacementDpEvent(clients, joined, noise)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(config.delta))
