"""What a verdict is."""

from typing import NamedTuple

REPRODUCED, IN_PART = "reproduced", "reproduced in part"
MOSTLY_NOT, NOT = "mostly not reproduced", "not reproduced"
NOT_RUN = "not run"
SMALL = "A quick look at small size, which shows little: "


class Verdict(NamedTuple):
    """A claim, whether it holds here, and why we say so."""

    claim: str
    verdict: str
    why: str
    figure: str = ""  # the experiment that shows it


def share(good: int, of: int) -> str:
    """The verdict where a claim holds in so many cases.

    >>> share(2, 2), share(1, 2), share(1, 3), share(0, 2), share(0, 0)
    ('reproduced', 'reproduced in part', 'mostly not reproduced', 'not reproduced', 'not run')
    """
    if not of:
        return NOT_RUN
    if good in (0, of):
        return REPRODUCED if good else NOT
    return IN_PART if 2 * good >= of else MOSTLY_NOT
