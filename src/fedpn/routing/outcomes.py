"""The outcomes of a decision, and who answers in each: derived here and nowhere else."""

from enum import IntEnum, StrEnum

import torch
from torch import Tensor


class Source(StrEnum):
    """Who answers."""

    LOCAL = "local"
    GLOBAL = "global"
    NOBODY = "nobody"


class Outcome(IntEnum):
    """The paper's table of outcomes, and one for inputs that nobody knows; tensors hold numbers."""

    LOCAL_CONFIDENT = 0
    LOCAL_AMBIGUOUS = 1
    LOCAL_OOD = 2
    GLOBAL_UNCERTAIN = 3
    STRANGER = 4

    @property
    def label(self) -> str:
        """
        >>> Outcome.LOCAL_OOD.label
        'local_ood'
        """
        return self.name.lower()

    @property
    def is_sent_on(self) -> bool:
        """Whether the federation is asked, not the client's own model."""
        return self in (Outcome.LOCAL_OOD, Outcome.GLOBAL_UNCERTAIN)

    @property
    def source(self) -> Source:
        return ANSWERERS[self]


ANSWERERS = {
    Outcome.LOCAL_CONFIDENT: Source.LOCAL,
    Outcome.LOCAL_AMBIGUOUS: Source.NOBODY,
    Outcome.LOCAL_OOD: Source.GLOBAL,
    Outcome.GLOBAL_UNCERTAIN: Source.NOBODY,
    Outcome.STRANGER: Source.NOBODY,
}
OUTCOMES = tuple(outcome.label for outcome in Outcome)
BY_LABEL = {outcome.label: outcome for outcome in Outcome}


def answered(outcomes: Tensor) -> Tensor:
    """Tells of outcomes, [B], whether somebody answers.

    >>> answered(torch.tensor([0, 1, 2, 3, 4]))
    tensor([ True, False,  True, False, False])
    """
    table = torch.tensor([ANSWERERS[outcome] is not Source.NOBODY for outcome in Outcome])
    return table.to(outcomes.device)[outcomes]
