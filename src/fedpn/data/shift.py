"""Shifts between clients, made on purpose: noisy labels; inverted, turned, dim and noisy images."""

from collections.abc import Sequence

import numpy as np

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array


def noisy_labels(
    labels: Array, among: Sequence[int], seed: int, rows: Array | None = None, share: float = 1.0
) -> Array:
    """Redraws labels of the chosen classes among themselves, as in the paper's noisy sets.

    `share` of such labels are redrawn, each of the chosen classes as likely as any other; `rows`
    keeps the noise to some of them.

    >>> noisy_labels(np.array([0, 5, 6, 7, 1]), among=(5, 6, 7), seed=0)[[0, 4]]
    array([0, 1])
    """
    missing = sorted(set(among) - set(np.unique(labels).tolist()))
    if missing or len(set(among)) < 2:
        raise UserError(
            f"label noise among the classes {list(among)} needs at least two, and each in the data"
            + (f"; {missing[0]} is not" if missing else "")
        )
    rng = seeds.stream("labels", seed)
    chosen = np.isin(labels, np.array(among)) & (rng.random(len(labels)) < share)
    if rows is not None:
        chosen &= np.isin(np.arange(len(labels)), rows)
    drawn = rng.choice(np.array(sorted(set(among))), len(labels))
    return np.where(chosen, drawn, labels)


def rotate(images: Array, rows: Array, quarters: int) -> Array:
    """Turns some images, [N, C, H, W], by quarters of a circle, anticlockwise.

    >>> rotate(np.array([[[[1, 2], [3, 4]]]]), np.array([0]), quarters=1)[0, 0]
    array([[2, 4],
           [1, 3]])
    """
    if quarters % 2 and images.shape[2] != images.shape[3]:
        height, width = images.shape[2:]
        raise UserError(
            f"images of {width}×{height} cannot be turned by {quarters * 90}°; use 180°, "
            "or square ones (data.image_size)"
        )
    turned = images.copy()
    turned[rows] = np.rot90(images[rows], quarters, axes=(2, 3))
    return turned


def invert(images: Array, rows: Array) -> Array:
    """Makes dark bright and bright dark in some images of bytes.

    >>> invert(np.array([[0, 255], [0, 255]], np.uint8), np.array([1]))
    array([[  0, 255],
           [255,   0]], dtype=uint8)
    """
    inverted = images.copy()
    inverted[rows] = 255 - images[rows]
    return inverted


def dim(images: Array, rows: Array, seed: int) -> Array:
    """Makes some images of bytes half as bright, with noise."""
    dimmed = images.copy()
    noise = seeds.stream("dim", seed).normal(0, 25, images[rows].shape)
    dimmed[rows] = (images[rows] * 0.5 + noise).clip(0, 255).astype(images.dtype)
    return dimmed


def shift_clients(images: Array, owned: Sequence[Array], seed: int) -> Array:
    """Gives clients pictures of four kinds by turns: as they are, inverted, turned, dim."""
    if images.ndim != 4:
        raise UserError("data.shift changes pictures, and these data are a table")
    kinds = [np.concatenate([np.empty(0, np.int64), *owned[kind::4]]) for kind in range(4)]
    turned = rotate(invert(images, kinds[1]), kinds[2], 1 if _square(images) else 2)
    return dim(turned, kinds[3], seed)


def _square(images: Array) -> bool:
    return bool(images.shape[2] == images.shape[3])
