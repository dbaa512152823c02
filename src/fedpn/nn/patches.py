"""Random filters in the metric of whitened patches: features of images without any training.

Patches are contrast-normalised, p̂ = (p − mean p) / √(var p + ε), and whitened by their covariance;
filters are drawn at random, of unit length (Coates & Ng, 2011, learn theirs by K-means, for which
patches would have to leave their clients; moments suffice here).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedpn.core.tracing import chunks, pool_to

SIZE = 6  # of a patch's side, where images allow it
EPSILON = 1e-4  # of contrasts: about 2.5 of 255 levels
RIDGE = 0.1  # of the whitening
THRESHOLD = 0.25  # a response counts as far as it exceeds this, either way
CELLS = 3  # responses are averaged over 3×3 parts of the image
STRIDE = 2  # between the patches whose moments are taken
IMAGES = 16  # at once: their responses stay in the processor's cache


class PatchMoments(NamedTuple):
    """Sums over images of the means over their patches; those of clients add up."""

    rows: Tensor  # [], images
    total: Tensor  # [P]
    outer: Tensor  # [P, P]


def patch_size(height: int, width: int) -> int:
    """The side of a patch.

    >>> patch_size(28, 28), patch_size(6, 8)
    (6, 4)
    """
    return max(1, min(SIZE, height - CELLS + 1, width - CELLS + 1))


def scaled(x: Tensor) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def moments(x: Tensor) -> PatchMoments:  # [B, C, H, W]
    """Adds up the patches of some images."""
    parts = [_moments(part) for part in torch.split(x, IMAGES)]
    return PatchMoments(*(torch.stack(sums).sum(0) for sums in zip(*parts, strict=True)))


def _moments(x: Tensor) -> PatchMoments:
    size = patch_size(*x.shape[2:])
    patches = F.unfold(scaled(x), size, stride=STRIDE).transpose(1, 2)  # [B, n, P]
    each = patches.shape[1]
    patches = patches.flatten(0, 1)
    centred = patches - patches.mean(1, keepdim=True)
    spread = (centred.square().mean(1, keepdim=True) + EPSILON).sqrt()
    normal = (centred / spread).double()
    return PatchMoments(normal.new_tensor(len(x)), normal.sum(0) / each, normal.T @ normal / each)


def draw_filters(m: PatchMoments, count: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws filters, [M, P], and what their responses are shifted by, [M]."""
    mean = m.total / m.rows
    covariance = m.outer / m.rows - torch.outer(mean, mean)
    values, vectors = torch.linalg.eigh(covariance)
    whiten = vectors / (values.clamp(min=0) + RIDGE).sqrt() @ vectors.T
    directions = torch.randn(count, len(mean), generator=rng, dtype=torch.float64)
    filters = directions / directions.norm(dim=1, keepdim=True) @ whiten
    return filters.float(), (filters @ mean).float()


def pooled(x: Tensor, filters: Tensor, shift: Tensor) -> Tensor:  # -> [B, 2·M·9]
    """Soft-thresholded responses to both signs of each filter, averaged over parts of the image."""
    return torch.cat([_pooled(part, filters, shift) for part in chunks(x, IMAGES)])


def _pooled(x: Tensor, filters: Tensor, shift: Tensor) -> Tensor:
    """A filter's response to a contrast-normalised patch follows from three plain convolutions."""
    x = scaled(x)
    channels, *sides = map(int, x.shape[1:])
    size = patch_size(*sides)
    kernels = filters.reshape(len(filters), channels, size, size)
    box = torch.full((1, channels, size, size), 1 / int(filters.shape[1]), device=x.device)
    mean, square = F.conv2d(x, box), F.conv2d(x.square(), box)
    scale = ((square - mean.square()).clamp(min=0) + EPSILON).rsqrt()
    tilt = filters.sum(1)[:, None, None]
    response = F.conv2d(x, kernels)
    response.addcmul_(mean, tilt, value=-1).mul_(scale).sub_(shift[:, None, None])
    below = F.relu_(-response - THRESHOLD)
    above = F.relu_(response.sub_(THRESHOLD))
    both = [pool_to(side, (CELLS, CELLS)).flatten(1) for side in (above, below)]
    return torch.cat(both, 1)
