"""Densities over embeddings, one per class: z -> log p(z | c)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedpn.nn.kernels import Radial, label_log_prob, radial_log_prob


class RadialFlows(nn.Module):
    """One stack of radial layers per class (Rezende & Mohamed, 2015), all stacked in one tensor.

    With `flows=1` it is NatPN's single density (Charpentier et al., 2022), whatever the label;
    with one flow per class PostNet's (Charpentier et al., 2020), which the paper uses.
    """

    def __init__(self, dim: int, flows: int, layers: int = 30) -> None:
        super().__init__()
        self.x0 = nn.Parameter(_uniform(dim, flows, layers, dim))
        self.a = nn.Parameter(_uniform(dim, flows, layers))
        self.s = nn.Parameter(_uniform(dim, flows, layers))

    def log_prob(self, z: Tensor) -> tuple[Tensor, Tensor]:  # [B, D] -> [B, K], [B, K]
        """Returns log p(z | c) for every class, with and without gradients to the flows."""
        return radial_log_prob(z.unsqueeze(-2), Radial(self.x0, self.a, self.s))

    def label_log_prob(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:  # -> [B], [B]
        """Returns log p(z | y) of each row's own label: K times less work."""
        if self.x0.shape[0] == 1:
            labels = torch.zeros_like(labels)
        return label_log_prob(z, Radial(self.x0, self.a, self.s), labels)


def _uniform(dim: int, *shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-(dim**-0.5), dim**-0.5)


Density = RadialFlows
DENSITIES: dict[str, Callable[[int, int, int], Density]] = {
    "radial": lambda dim, classes, layers: RadialFlows(dim, classes, layers),
    "radial-single": lambda dim, classes, layers: RadialFlows(dim, 1, layers),
}
