"""A generic and a personal head on one body (FedRoD: Chen & Chao, 2022)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpn.nn.encoders import dense
from fedpn.nn.posterior import Classifier, Normalise


class TwoHeaded(Classifier):
    """Answers with the sum of both heads; `prior` holds the client's class frequencies."""

    prior: Tensor

    def __init__(self, normalise: Normalise, encoder: nn.Module, dim: int, classes: int) -> None:
        super().__init__(normalise, encoder, dim, classes)
        self.own_head = dense([dim, 3 * dim, classes])
        self.register_buffer("prior", torch.full((classes,), 1 / classes))

    def logits(self, z: Tensor) -> Tensor:
        logits: Tensor = self.head(z) + self.own_head(z)
        return logits


def balanced_and_personal(network: TwoHeaded, z: Tensor, labels: Tensor) -> Tensor:
    """CE(h(z) + log p(y)) for body and generic head, CE(h(z) + h_k(z)) for the personal one."""
    generic = network.head(z)
    personal = generic.detach() + network.own_head(z.detach())
    balanced = cross_entropy(generic + network.prior.log(), labels)
    return balanced + cross_entropy(personal, labels)
