"""Thresholds from held-out rows of the client's own."""

import math
from typing import NamedTuple

from torch import Tensor

from fedpn.core.errors import UserError
from fedpn.routing.scores import Opinion


class Thresholds(NamedTuple):
    """Above them the local model delegates, the local model abstains, the global one abstains."""

    epistemic: float
    aleatoric: float
    total: float


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


def calibrate(local: Opinion, shared: Opinion, outliers: float, abstain: float) -> Thresholds:
    """Takes each threshold by its own model on the client's calibration rows."""
    return Thresholds(
        epistemic=threshold(local.epistemic, outliers),
        aleatoric=threshold(local.aleatoric, abstain),
        total=threshold(shared.total, abstain),
    )
