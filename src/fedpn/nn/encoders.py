"""Encoders: what a client saw -> an embedding z of few dimensions."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedpn.core.errors import UserError
from fedpn.core.settings import find_object
from fedpn.nn.kernels import conv_relu_pool
from fedpn.nn.resnet import Norm, ResNet18, make_norm

Shape = tuple[int, ...]  # of one input: (channels, height, width), or (features,)


class LeNet5(nn.Module):
    """LeNet-5 without padding (LeCun et al., 1998): 6 and 16 filters of 5×5, then 120, 84, D.

    Images below 16×16 are framed with zeros up to that size. A norm, where asked for, stands
    between convolution and ReLU.
    """

    def __init__(self, shape: Shape, dim: int, norm: Norm = "none") -> None:
        super().__init__()
        channels, height, width = shape
        self.frame = _frame(height, width, least=16)
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.norm1, self.norm2 = make_norm(norm, 6), make_norm(norm, 16)
        left, right, top, bottom = self.frame
        side = [((n - 4) // 2 - 4) // 2 for n in (height + top + bottom, width + left + right)]
        self.dense = dense([16 * side[0] * side[1], 120, 84, dim])

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, D]
        if any(self.frame):
            x = F.pad(x, self.frame)
        x = self._convolve(self._convolve(x, self.conv1, self.norm1), self.conv2, self.norm2)
        z: Tensor = self.dense(x.flatten(1))
        return z

    def _convolve(self, x: Tensor, conv: nn.Conv2d, norm: nn.Module) -> Tensor:
        assert conv.bias is not None
        if isinstance(norm, nn.Identity):
            return conv_relu_pool(x, conv.weight, conv.bias)
        return F.max_pool2d(F.relu(norm(conv(x))), 2)

    def layers(self, x: Tensor) -> list[Tensor]:  # [B, C, H, W] -> [B, ...] each
        """The activations of all layers, from the first to the embedding."""
        if any(self.frame):
            x = F.pad(x, self.frame)
        first = self._convolve(x, self.conv1, self.norm1)
        second = self._convolve(first, self.conv2, self.norm2)
        return [first, second, *activations(self.dense, second.flatten(1))]


class MLP(nn.Module):
    """Three dense layers, for tables and for small images."""

    def __init__(self, shape: Shape, dim: int, norm: Norm = "none", width: int = 128) -> None:
        super().__init__()
        inputs = 1
        for n in shape:
            inputs *= n
        self.dense = dense([inputs, width, width, dim])

    def forward(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, D]
        z: Tensor = self.dense(x.flatten(1))
        return z

    def layers(self, x: Tensor) -> list[Tensor]:
        """The activations of all layers, from the first to the embedding."""
        return activations(self.dense, x.flatten(1))


class Frozen(nn.Module):
    """An encoder that stays as it is: its weights are buffers, which nothing trains or decays."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder.eval()
        for module in encoder.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, weight.detach())
        if hasattr(encoder, "layers"):
            self.layers = encoder.layers

    def forward(self, x: Tensor) -> Tensor:  # [B, ...] -> [B, D]
        z: Tensor = self.encoder(x)
        return z

    def train(self, mode: bool = True) -> "Frozen":
        """Stays in the mode in which it answers: its norms do not move either."""
        return super().train(False)


def dense(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for inputs, outputs in pairwise(sizes[1:]):
        layers += [nn.ReLU(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers)


def activations(stack: nn.Sequential, x: Tensor) -> list[Tensor]:
    """What each linear layer gives, rectified where a ReLU follows."""
    found: list[Tensor] = []
    for layer in stack:
        x = layer(x)
        if isinstance(layer, nn.ReLU):
            found[-1] = x
        else:
            found.append(x)
    return found


def initialise(encoder: nn.Module) -> nn.Module:
    """Draws weights of variance 1 / inputs, and no biases (LeCun et al., 1998).

    PyTorch's default has a third of that variance, so that signals fade from layer to layer, a
    trap for a federation of posterior networks: the clients' cross-entropies pull weak features
    apart in directions that cancel in the mean, while all likelihoods agree to pull embeddings
    together.
    """
    for layer in encoder.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return encoder


def _frame(height: int, width: int, least: int) -> tuple[int, int, int, int]:
    """Tells how many zeros bring an image to the least size: left, right, top, bottom.

    >>> _frame(28, 28, least=16), _frame(8, 9, least=16)
    ((0, 0, 0, 0), (3, 4, 4, 4))
    """
    w, h = max(least - width, 0), max(least - height, 0)
    return w // 2, w - w // 2, h // 2, h - h // 2


# Name -> the norm that it has where nothing is said, and its maker.
ENCODERS: dict[str, tuple[Norm, Callable[[Shape, int, Norm], nn.Module]]] = {
    "lenet5": ("none", LeNet5),
    "mlp": ("none", MLP),
    "resnet18": ("batch", lambda shape, dim, norm: ResNet18(shape[0], dim, norm)),
    "resnet18-small": ("batch", lambda shape, dim, norm: ResNet18(shape[0], dim, norm, small=True)),
}


def make_encoder(name: str, shape: Shape, dim: int, norm: str = "auto") -> nn.Module:
    """Builds an encoder with its first weights: of the table, or of the user's own."""
    if ":" in name:
        if norm != "auto":
            raise UserError(f"model.norm is {norm!r}, but {name} has the norms that it has")
        return _own(name, tuple(shape), dim)
    usual, make = ENCODERS[name]
    kind = usual if norm == "auto" else norm
    if name == "mlp" and kind != "none":
        raise UserError(f"model.norm is {kind!r}, but the encoder mlp has no norm; use lenet5")
    if len(shape) != 3 and name != "mlp":
        raise UserError(f"the encoder {name} takes images and these are rows of a table; use mlp")
    return initialise(make(shape, dim, kind))  # type: ignore[arg-type]


def _own(spec: str, shape: Shape, dim: int) -> nn.Module:
    """Takes `file.py:Net` or `module:Net`, called as `Net(shape, dim)`, and tries it out."""
    make = find_object("model.encoder", spec, "encoder")
    try:
        found = make(shape, dim)
    except Exception as error:  # whatever it is, it is the user's own
        raise UserError(f"model.encoder: {spec}({shape}, {dim}) fails: {error}") from error
    if not isinstance(found, nn.Module):
        raise UserError(f"model.encoder: {spec}({shape}, {dim}) gives no torch.nn.Module")
    if any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in found.modules()):
        raise UserError(
            f"model.encoder: {spec} has dropout, which clients that are stacked cannot draw; take "
            "it out"
        )
    found = found.to(torch.get_default_device())  # it may have been made before, or elsewhere
    try:
        with torch.no_grad():
            z = found.eval()(torch.zeros(2, *shape))
    except Exception as error:
        raise UserError(f"model.encoder: {spec} fails on inputs of {shape}: {error}") from error
    if not isinstance(z, Tensor) or tuple(z.shape) != (2, dim):
        gives = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise UserError(
            f"model.encoder: of two inputs {spec} must make an embedding of (2, {dim}), not {gives}"
        )
    if _draws(found, shape):
        raise UserError(
            f"model.encoder: {spec} draws random numbers in its steps, which clients could not "
            "repeat; take that out"
        )
    return found.train()


def _draws(encoder: nn.Module, shape: Shape) -> bool:
    """Return whether an encoder in training draws from PyTorch's generator."""
    before = torch.get_rng_state()
    with torch.no_grad(), suppress(Exception):  # what fails is told when it trains
        copy.deepcopy(encoder).train()(torch.zeros(2, *shape))
    return not torch.equal(before, torch.get_rng_state())
