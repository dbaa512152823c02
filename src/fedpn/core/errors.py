"""The user's mistakes, told in one sentence."""


class UserError(ValueError):
    """Names the thing, the value and the way out; the command line ends with status 2."""
