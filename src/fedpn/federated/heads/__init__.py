"""Heads in closed form: how the global model answers, learned from sums after the rounds."""

from collections.abc import Callable

from fedpn.core.errors import UserError
from fedpn.core.settings import find_object, one_of
from fedpn.federated.heads.base import Head
from fedpn.federated.heads.features import Features
from fedpn.federated.heads.means import ClassMeans
from fedpn.federated.heads.ridge import Ridge
from fedpn.federated.settings import HeadSettings

TRAINED = "trained"  # the one that the rounds trained
HEADS: dict[str, Callable[[HeadSettings], Head]] = {
    "means": lambda settings: ClassMeans(),
    "ridge": lambda settings: Ridge(
        Features(
            tuple(settings.features.split("+")),
            settings.filters,
            settings.fourier,
            settings.seed,
            settings.clip if settings.noise else 0.0,
        ),
        settings.noise,
    ),
}


def make_head(settings: HeadSettings) -> Head | None:
    """Takes a head from the table, or the user's own: module:Class or file.py:Class."""
    if settings.kind == TRAINED:
        return None
    if ":" not in settings.kind:
        one_of("head.kind", settings.kind, [TRAINED, *HEADS])
        return HEADS[settings.kind](settings)
    found = find_object("head.kind", settings.kind, "head")
    if not (isinstance(found, type) and issubclass(found, Head)):
        raise UserError(f"head.kind: {settings.kind!r} is no class below Head")
    return found()
