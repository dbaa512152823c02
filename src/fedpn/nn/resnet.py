"""ResNet-18 (He et al., 2016), for large images or small ones."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch.nn.functional as F  # noqa: N812
from safetensors import safe_open
from torch import Tensor, nn

from fedpn.core.errors import UserError

Norm = Literal["none", "batch", "group"]


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """Batch normalisation keeps no count of batches, so that its whole state can be averaged."""
    if kind == "batch":
        norm = nn.BatchNorm2d(channels)
        norm.num_batches_tracked = None
        return norm
    if kind == "group":
        return nn.GroupNorm(math.gcd(channels, 32), channels)
    return nn.Identity()


class Conv3x3(nn.Conv2d):
    """A padded 3×3 convolution that spares taps which see nothing but padding.

    On 1×1 (where the last layers of a network for large images end on 32×32 ones) only the centre
    sees anything: a matrix product. On 2×2 to 1×1, four of nine do, but the product gains nothing
    on the general convolution, which is therefore left alone.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, 3, stride, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2:] == (1, 1):
            return F.linear(x.flatten(-3), self.weight[:, :, 1, 1])[..., None, None]
        return super().forward(x)


class Block(nn.Module):
    """Two 3×3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = Conv3x3(inputs, outputs, stride)
        self.bn1 = make_norm(norm, outputs)
        self.conv2 = Conv3x3(outputs, outputs, 1)
        self.bn2 = make_norm(norm, outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, make_norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x))


class ResNet18(nn.Module):
    """Entries are named as torchvision names them, so that its weights can be loaded.

    `small` begins with 3×3 at full resolution instead of 7×7, stride 2 and a pool (for 32×32).
    """

    def __init__(self, channels: int, dim: int, norm: Norm = "batch", small: bool = False) -> None:
        super().__init__()
        self.small = small
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
        self.bn1 = make_norm(norm, 64)
        widths = [64, 64, 128, 256, 512]
        for i in range(1, 5):
            inputs, outputs = widths[i - 1], widths[i]
            first = Block(inputs, outputs, 1 if i == 1 else 2, norm)
            setattr(self, f"layer{i}", nn.Sequential(first, Block(outputs, outputs, 1, norm)))
        self.fc = nn.Linear(512, dim)

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, D]
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        layers: list[Callable[[Tensor], Tensor]] = [getattr(self, f"layer{i}") for i in range(1, 5)]
        for layer in layers:
            x = layer(x)
        z: Tensor = self.fc(x.mean((2, 3)))
        return z

    def layers(self, x: Tensor) -> list[Tensor]:
        """Each stage's activations, averaged over the image, and the embedding."""
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        found = []
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
            found.append(x.mean((2, 3)))
        return [*found, self.fc(found[-1])]


def load_pretrained(encoder: nn.Module, path: Path) -> None:
    """Loads weights from a safetensors file; what stands above the body is left out."""
    entries = {n: t for n, t in encoder.state_dict().items() if not n.startswith("fc.")}
    try:
        with safe_open(path, "pt") as file:
            for name, tensor in entries.items():
                if name not in file.keys():  # noqa: SIM118
                    raise UserError(f"model.pretrained: {path} has no entry {name!r}")
                found = file.get_tensor(name)
                if found.shape != tensor.shape:
                    raise UserError(
                        f"model.pretrained: {name!r} in {path} is {tuple(found.shape)}, "
                        f"this encoder's is {tuple(tensor.shape)}"
                    )
                if found.is_complex():
                    raise UserError(f"model.pretrained: {name!r} in {path} has complex numbers")
                tensor.copy_(found)
    except FileNotFoundError:
        raise UserError(f"model.pretrained: there is no file {path}") from None
    except UserError:
        raise
    except Exception as error:  # readers of damaged files fail in many ways, and at length
        told = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"model.pretrained: {path} cannot be read: {told[:300]}") from None
