"""Shifts between clients, made on purpose: noisy labels; inverted, turned, dim and noisy images."""

from collections.abc import Callable, Sequence

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


def noisy(images: Array, rows: Array, width: float, seed: int, client: int) -> Array:
    """Adds noise to some images of bytes."""
    drawn = seeds.stream("noisy", seed, client).normal(0, width, images[rows].shape)
    return np.asarray((images[rows] + drawn).round().clip(0, 255).astype(images.dtype))


def blurred(images: Array, rows: Array, width: float) -> Array:
    """Blurs some images, each channel by itself."""
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(images[rows], (0, 0, width, width)))


def scrambled(images: Array, seed: int, client: int) -> Array:
    """Shuffle the pixels of each image by itself: a stranger of the same brightness and contrast.

    >>> images = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    >>> bool((np.sort(scrambled(images, 0, 0).reshape(2, 16)) == images.reshape(2, 16)).all())
    True
    """
    n, channels, height, width = images.shape
    order = seeds.stream("scrambled", seed, client).random((n, 1, height * width)).argsort(-1)
    pixels = images.reshape(n, channels, height * width)
    return np.asarray(np.take_along_axis(pixels, order, -1).reshape(images.shape))


def shift_clients(images: Array, owned: Sequence[Array], seed: int, kind: str) -> Array:
    """Makes the pictures of clients differ in one way, or in four by turns."""
    if images.ndim != 4:
        raise UserError("data.shift changes pictures, and these data are a table")
    return SHIFTS[kind](images, owned, seed)


def _graded(
    images: Array, owned: Sequence[Array], change: Callable[[Array, float, int], Array]
) -> Array:
    """From the first client, whose pictures stay, to the last, whose change the most: 0 to 1."""
    changed = images.copy()
    for client, rows in enumerate(owned[1:], 1):
        changed[rows] = change(rows, client / (len(owned) - 1), client)
    return changed


def _noise(images: Array, owned: Sequence[Array], seed: int) -> Array:
    return _graded(images, owned, lambda rows, s, c: noisy(images, rows, NOISE * s, seed, c))


def _blur(images: Array, owned: Sequence[Array], seed: int) -> Array:
    return _graded(images, owned, lambda rows, s, c: blurred(images, rows, BLUR * s))


def _rotate(images: Array, owned: Sequence[Array], seed: int) -> Array:
    turned, step = images, 1 if _square(images) else 2
    for quarters in range(1, 4):
        rows = np.concatenate([np.empty(0, np.int64), *owned[quarters::4]])
        turned = rotate(turned, rows, step * quarters)
    return turned


def _invert(images: Array, owned: Sequence[Array], seed: int) -> Array:
    return invert(images, np.concatenate([np.empty(0, np.int64), *owned[1::2]]))


def _by_turns(images: Array, owned: Sequence[Array], seed: int) -> Array:
    """As they are, inverted, turned, dim and noisy."""
    kinds = [np.concatenate([np.empty(0, np.int64), *owned[kind::4]]) for kind in range(4)]
    turned = rotate(invert(images, kinds[1]), kinds[2], 1 if _square(images) else 2)
    return dim(turned, kinds[3], seed)


def _square(images: Array) -> bool:
    return bool(images.shape[2] == images.shape[3])


NOISE, BLUR = 64.0, 2.0  # of the last client: in bytes, in pixels
SHIFTS: dict[str, Callable[[Array, Sequence[Array], int], Array]] = {
    "pictures": _by_turns,
    "rotate": _rotate,
    "invert": _invert,
    "noise": _noise,
    "blur": _blur,
}
