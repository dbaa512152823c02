"""Numbers as whole numbers, to which masks can be added: exact sums of statistics.

A number x within ±2³⁴ becomes three digits to the base 2²⁴, x = a·2¹¹ + b·2⁻¹³ + c·2⁻³⁷, so that
the sum of up to 128 nodes' digits stays below what masks hold, and nothing is lost above 4·10⁻¹².
Sums over columns in units of their own may be far larger: of these six digits of what is above 0
and six of what is below travel, up to 2¹⁰⁶.
"""

import numpy as np
from numpy.typing import NDArray

from fedpn.core.errors import UserError

DIGIT = 2**24  # the base, and how finely the protocol must tell numbers apart
LARGEST = 2.0**34
MOST = 128  # nodes whose digits add up to less than 2³¹
WIDE = tuple(2.0**place for place in (83, 59, 35, 11, -13, -37))
WIDEST = 2.0**106
PLACES = (2.0**11, 2.0**-13, 2.0**-37)  # what a digit is worth

Array = NDArray[np.float64]


def to_digits(values: Array) -> Array:  # [...] -> [3, ...]
    """Digits from 0 to 2²⁴; the first is shifted by half of that, since numbers have signs.

    >>> to_digits(np.array([0.0, 2.0**11]))[0] - DIGIT / 2
    array([0., 1.])
    """
    if not (np.abs(values) < LARGEST).all():
        raise UserError(f"what this node adds up is not finite, or larger than {LARGEST:.0e}")
    values = np.round(values / PLACES[2]) * PLACES[2]  # of numbers next to 0, floors would err
    first = np.floor(values / PLACES[0])
    rest = (values - first * PLACES[0]) / PLACES[1]
    second = np.floor(rest)
    third = np.round((rest - second) * DIGIT)
    return np.stack([first + DIGIT / 2, second, third])


def from_digits(digits: Array, nodes: int) -> Array:  # [3, ...] -> [...]
    """The sum of so many nodes' numbers from the sums of their digits.

    >>> parts = np.array([[0.25], [-3.0], [1e9]])
    >>> from_digits(to_digits(parts).sum(1), 3).tolist()
    [999999997.25]
    """
    first, second, third = digits
    found: Array = second * PLACES[1] + third * PLACES[2]
    found += (first - nodes * DIGIT / 2) * PLACES[0]
    return found


def to_wide(values: Array) -> Array:  # [...] -> [12, ...]
    """Digits of the positive part, then of the negative one.

    >>> to_wide(np.array([-(2.0**83)]))[6]
    array([1.])
    """
    if not (np.abs(values) < WIDEST).all():
        raise UserError(f"what this node adds up is not finite, or larger than {WIDEST:.0e}")
    digits = []
    for part in (np.maximum(values, 0), np.maximum(-values, 0)):
        rest = part
        for place in WIDE[:-1]:
            digits.append(np.floor(rest / place))
            rest = rest - digits[-1] * place
        digits.append(np.minimum(np.round(rest / WIDE[-1]), DIGIT - 1))
    return np.stack(digits)


def from_wide(digits: Array, nodes: int) -> Array:  # [12, ...] -> [...]
    """The sum of nodes' numbers from the sums of their digits.

    >>> parts = np.array([[0.25], [-3.0], [1e30]])
    >>> from_wide(to_wide(parts).sum(1), 3).tolist() == [1e30]
    True
    """
    worth = np.array(WIDE).reshape(-1, *[1] * (digits.ndim - 1))
    above, below = digits[: len(WIDE)], digits[len(WIDE) :]
    found: Array = ((above - below) * worth).sum(0)
    return found


def to_range(digits: Array, reach: float) -> Array:
    """Digits as numbers from −reach to reach, as the protocol wants them."""
    return digits * (2 * reach / DIGIT) - reach


def from_mean(mean: Array, nodes: int, reach: float) -> Array:
    """The sums of digits from what the protocol says is the nodes' mean."""
    return np.round((mean + reach) * nodes * (DIGIT / (2 * reach)))
