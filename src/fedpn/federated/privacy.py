"""The (ε, δ) account of a federation with clipped and noised means."""

from fedpn.core.errors import UserError
from fedpn.federated.aggregation import AggregationSettings


def spent(config: AggregationSettings, joined: int, clients: int, rounds: int) -> float | None:
    """How much privacy some rounds have cost each client, at the config's δ.

    Accounted by Rényi divergences for Gaussian noise on a sample without replacement; a client is
    the unit that is replaced. None without noise: nothing is promised then.
    """
    if not config.noise or not rounds:
        return None
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise UserError("accounts of privacy need an extra: pip install 'fedpn[privacy]'") from None
    # Replacing one client moves the sum of clipped moves by up to twice the clip.
    noise = dp_accounting.GaussianDpEvent(config.noise / 2)
    event = dp_accounting.SampledWithoutReplacementDpEvent(clients, joined, noise)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant(neighboring_relation=relation)
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(config.delta))
