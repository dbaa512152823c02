"""Densities over embeddings, one per class: z -> log p(z | c)."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from fedpn.core.errors import UserError
from fedpn.core.settings import find_object
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


class Density(Protocol):
    """What a posterior network needs of a density, beside being a `torch.nn.Module`."""

    def log_prob(self, z: Tensor) -> tuple[Tensor, Tensor]: ...

    def label_log_prob(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]: ...


DENSITIES: dict[str, Callable[[int, int, int], Density]] = {
    "radial": lambda dim, classes, layers: RadialFlows(dim, classes, layers),
    "radial-single": lambda dim, classes, layers: RadialFlows(dim, 1, layers),
}


def make_density(name: str, dim: int, classes: int, layers: int) -> Density:
    """Takes a density from the table, or the user's own, made by `Own(dim, classes, layers)`."""
    if ":" not in name:
        return DENSITIES[name](dim, classes, layers)
    make = find_object("model.density", name, "density")
    try:
        found = make(dim, classes, layers)
        z, labels = torch.zeros(2, dim), torch.zeros(2, dtype=torch.long)
        shapes = [tuple(t.shape) for t in (*found.log_prob(z), *found.label_log_prob(z, labels))]
    except Exception as error:  # whatever it is, it is the user's own
        call = f"{name}({dim}, {classes}, {layers})"
        raise UserError(f"model.density: {call} fails: {error}") from error
    if not isinstance(found, nn.Module) or shapes[2:] != [(2,)] * 2 or shapes[0] != shapes[1]:
        raise UserError(
            f"model.density: {name} must be a torch.nn.Module whose log_prob gives [B, {classes}] "
            "twice, with and without gradients to itself, and label_log_prob [B] twice"
        )
    return cast(Density, found)
