"""Thresholds from held-out rows, and how a score compares with one."""

import math

from torch import Tensor

from fedpn.core import promises
from fedpn.core.errors import UserError


def rows_needed(share: float) -> int:
    """The fewest calibration rows from which a share can be cut off.

    >>> rows_needed(0.1), rows_needed(0.05)
    (9, 19)
    """
    return max(math.ceil(1 / share - 1 - 1e-9), 1)


def threshold(scores: Tensor, share: float) -> float:
    """The ⌈(n+1)(1−share)⌉-th smallest score.

    A new row of the same kind exceeds it with a chance of at most `share`, for any n: the
    finite-sample rule of conformal prediction.

    >>> threshold(Tensor([5, 1, 2, 9, 3, 4, 7, 8, 6]), share=0.1)
    9.0
    """
    n = len(scores)
    rank = math.ceil((n + 1) * (1 - share) - 1e-9)
    if rank > n:
        raise UserError(
            f"{n} calibration rows; a {100 * share:g} % threshold needs at least "
            f"{rows_needed(share)} (raise the share or give it more data)"
        )
    return float(scores.kthvalue(max(rank, 1)).values)


def doubt_edges(classes: int) -> Tensor:  # [E]
    """The grid on which clients count how doubtful rows are: from 0 to the entropy of no idea."""
    return promises.grid(math.log(classes))


def pooled_threshold(counts: Tensor, classes: int, share: float) -> float:
    """The same threshold from all clients' counts together, [2, E+1], up to a bin of the grid."""
    return promises.quantile_of(counts, doubt_edges(classes), 1 - share)


def never_binds(limit: float, classes: int) -> bool:
    """Tells of a limit on an entropy whether no row can exceed it.

    >>> never_binds(0.6931, 2), never_binds(0.69, 2)
    (True, False)
    """
    return limit >= (1 - 1e-3) * math.log(classes)


def compare(score: float, limit: float) -> str:
    """Shows as many digits as tell the two apart.

    >>> compare(9.5, 4.0), compare(2.3001, 2.3)
    ('9.5 > 4', '2.3001 > 2.3')
    """
    sign = ">" if score > limit else "≤"
    for digits in range(2, 9):
        left, right = f"{score:.{digits}g}", f"{limit:.{digits}g}"
        if left != right:
            break
    return f"{left} {sign} {right}"
