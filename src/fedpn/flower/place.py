"""A new directory, or one that is empty."""

from pathlib import Path

from fedpn.errors import UserError


def fresh(place: Path) -> Path:
    """Makes a directory, or refuses one that holds something already."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        full = any(place.iterdir())
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None
    if full:
        raise UserError(f"{place} is not empty; choose another directory")
    return place
