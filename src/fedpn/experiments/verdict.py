"""What a verdict is."""

from typing import NamedTuple

REPRODUCED, IN_PART, NOT = "reproduced", "reproduced in part", "not reproduced"
UNTESTED = "not testable"


class Verdict(NamedTuple):
    """A claim, whether it holds here, and why we say so."""

    claim: str
    verdict: str
    why: str


def share(good: int, of: int) -> str:
    """The verdict where a claim holds on so many sets.

    >>> share(2, 2), share(1, 2), share(0, 2), share(0, 0)
    ('reproduced', 'reproduced in part', 'not reproduced', 'not testable')
    """
    return UNTESTED if not of else REPRODUCED if good == of else IN_PART if good else NOT
