"""Encoders: what a client saw -> an embedding z of few dimensions."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedpn.kernels import conv_relu_pool

Shape = tuple[int, ...]  # of one input: (channels, height, width), or (features,)


class LeNet5(nn.Module):
    """LeNet-5 without padding (LeCun et al., 1998): 6 and 16 filters of 5×5, then 120, 84, D.

    Images below 16×16 are framed with zeros up to that size.
    """

    def __init__(self, shape: Shape, dim: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.frame = _frame(height, width, least=16)
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        left, right, top, bottom = self.frame
        side = [((n - 4) // 2 - 4) // 2 for n in (height + top + bottom, width + left + right)]
        self.dense = dense([16 * side[0] * side[1], 120, 84, dim])

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, D]
        if any(self.frame):
            x = F.pad(x, self.frame)
        for conv in (self.conv1, self.conv2):
            assert conv.bias is not None
            x = conv_relu_pool(x, conv.weight, conv.bias)
        z: Tensor = self.dense(x.flatten(1))
        return z


class MLP(nn.Module):
    """Three dense layers, for tables and for small images."""

    def __init__(self, shape: Shape, dim: int, width: int = 128) -> None:
        super().__init__()
        inputs = 1
        for n in shape:
            inputs *= n
        self.dense = dense([inputs, width, width, dim])

    def forward(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, D]
        z: Tensor = self.dense(x.flatten(1))
        return z


def dense(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for inputs, outputs in pairwise(sizes[1:]):
        layers += [nn.ReLU(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def he_initialise(encoder: nn.Module) -> nn.Module:
    """Draws weights that keep the size of signals through ReLU layers (He et al., 2015).

    PyTorch's default shrinks them from layer to layer. Embeddings that begin near zero are a trap
    for a federation of posterior networks: the clients' cross-entropies pull them apart in
    directions that cancel in the mean, while all likelihoods agree to pull them together.
    """
    layers = [m for m in encoder.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layers[-1].weight.mul_(0.5**0.5)  # nothing rectifies the embedding
    return encoder


def _frame(height: int, width: int, least: int) -> tuple[int, int, int, int]:
    """Tells how many zeros bring an image to the least size: left, right, top, bottom.

    >>> _frame(28, 28, least=16), _frame(8, 9, least=16)
    ((0, 0, 0, 0), (3, 4, 4, 4))
    """
    w, h = max(least - width, 0), max(least - height, 0)
    return w // 2, w - w // 2, h // 2, h - h // 2


ENCODERS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "lenet5": lambda shape, dim: he_initialise(LeNet5(shape, dim)),
    "mlp": lambda shape, dim: he_initialise(MLP(shape, dim)),
}
