"""Mistakes that a server may hear of in full: they tell of what it asked, of no file or cell."""

from fedpn.core.errors import UserError


class Told(UserError):  # noqa: N818
    """A mistake that a server may hear of in full."""
