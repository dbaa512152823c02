"""The decision: the paper's table of four outcomes."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.routing.scores import Opinion
from fedpn.routing.thresholds import Thresholds

OUTCOMES = ("local_confident", "local_ambiguous", "local_ood", "global_uncertain")
SOURCES = ("local", "global")


class Decision(NamedTuple):
    """Who answers, what, and the numbers behind it."""

    probs: Tensor  # [B, K], of the answering model
    label: Tensor  # [B]
    source: Tensor  # [B], index into SOURCES
    outcome: Tensor  # [B], index into OUTCOMES
    epistemic: Tensor  # [B], of the local model
    aleatoric: Tensor  # [B], of the local model
    total: Tensor  # [B], of the answering model

    @property
    def answered(self) -> Tensor:
        """Whether the four-outcome rule gives an answer, rather than abstain."""
        return self.outcome % 2 == 0


def decide(local: Opinion, shared: Opinion, thresholds: Thresholds) -> Decision:
    """Decides row by row.

    | local epistemic | then                 | outcome                             |
    | --------------- | -------------------- | ----------------------------------- |
    | low             | local aleatoric low  | local confident: the client answers |
    | low             | local aleatoric high | local ambiguous: nobody answers     |
    | high            | global total low     | local OOD: the federation answers   |
    | high            | global total high    | global uncertain: nobody answers    |
    """
    delegate = local.epistemic > thresholds.epistemic
    doubt = torch.where(
        delegate, shared.total > thresholds.total, local.aleatoric > thresholds.aleatoric
    )
    probs = torch.where(delegate[:, None], shared.probs, local.probs)
    return Decision(
        probs=probs,
        label=probs.argmax(-1),
        source=delegate.long(),
        outcome=2 * delegate.long() + doubt.long(),
        epistemic=local.epistemic,
        aleatoric=local.aleatoric,
        total=torch.where(delegate, shared.total, local.total),
    )


def reason(outcome: str, epistemic: float, aleatoric: float, total: float, t: Thresholds) -> str:
    """Tells in words why.

    >>> reason("local_ood", 9.5, 0.1, 0.2, Thresholds(4.0, 0.5, 0.5))
    'unlike the data of this client (9.5 > 4), familiar to the federation (0.2 ≤ 0.5)'
    """
    known = f"like the data of this client ({_compare(epistemic, t.epistemic)})"
    unknown = f"unlike the data of this client ({_compare(epistemic, t.epistemic)})"
    return {
        "local_confident": f"{known}, and clear ({_compare(aleatoric, t.aleatoric)})",
        "local_ambiguous": f"{known}, but ambiguous ({_compare(aleatoric, t.aleatoric)})",
        "local_ood": f"{unknown}, familiar to the federation ({_compare(total, t.total)})",
        "global_uncertain": f"{unknown}, and doubtful to all ({_compare(total, t.total)})",
    }[outcome]


def _compare(score: float, limit: float) -> str:
    """Shows as many digits as tell the two apart.

    >>> _compare(9.5, 4.0), _compare(2.3001, 2.3)
    ('9.5 > 4', '2.3001 > 2.3')
    """
    sign = ">" if score > limit else "≤"
    for digits in range(2, 9):
        left, right = f"{score:.{digits}g}", f"{limit:.{digits}g}"
        if left != right:
            break
    return f"{left} {sign} {right}"
