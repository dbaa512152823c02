"""The sums of a ridge regression: one client's, how they travel, and what they come to."""

import os
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedpn.core.errors import UserError
from fedpn.core.products import is_product
from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn.data.sources.guard import size
from fedpn.federated.heads.base import Seen
from fedpn.federated.heads.features import Features, chunks
from fedpn.federated.settings import HeadSettings
from fedpn.federated.site import Site

BLOCK = 256  # rows of a matrix at once
MATRICES = 5  # of a head, in memory at once
ENOUGH = 1 << 20  # scores of calibration rows times classes to choose a head by
WIDE = 4096  # features from which on few rows make a solution cheaper


def check_memory(settings: HeadSettings, shape: Sequence[int]) -> None:
    """Refuse tables with too many columns for the matrices of a ridge regression."""
    if settings.kind != "ridge" or len(shape) > 1 or "inputs" not in settings.features:
        return
    width = shape[0] + settings.fourier + 1
    needed, there = MATRICES * 8 * width**2, memory()
    if needed > there:
        raise UserError(
            f"a head in closed form over {shape[0]} columns has matrices of {width}×{width} "
            f"numbers, which need {size(needed)} of memory, and this machine has {size(there)}: "
            "name fewer columns in data.features, or choose an algorithm of rounds"
        )


def memory() -> int:
    """Bytes of the machine's memory; more than any need where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def seen_at(site: Site, rows: Array) -> Seen:
    """Rows of a site as a head sees them."""
    observe = site.observer
    assert observe.common is not None, "a head needs a global model"
    index = torch.from_numpy(rows).to(site.setup.device)
    return Seen(site.setup.model, observe.common, site.setup.data.x[index], observe.embed(rows))


def gram_of(features: Features, site: Site, state: Params) -> tuple[Tensor, Tensor]:
    """One client's G and B, in float64."""
    labels, weights = site.setup.labels(site.train), state["weights"]
    gram = cross = torch.zeros(())
    start = 0
    for part in chunks(seen_at(site, site.train)):
        truth = labels[start : start + len(part.x)]
        phi = features(part, state).double()
        weighted = phi * weights[truth][:, None]
        true = one_hot(truth, len(weights)).double()
        # In place: matrices of wide tables fill the memory.
        gram = gram.add_(weighted.T @ phi) if start else weighted.T @ phi
        cross = cross.add_(weighted.T @ true) if start else weighted.T @ true
        start += len(part.x)
    return gram.cpu(), cross.cpu()


def pack(gram: Tensor) -> Tensor:
    """The lower triangle of a symmetric matrix."""
    return torch.cat([row[: i + 1] for i, row in enumerate(gram)])


def unpack(triangle: Tensor) -> Tensor:
    """Undoes `pack`.

    >>> unpack(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    width = int((8 * len(triangle) + 1) ** 0.5 - 1) // 2
    gram = triangle.new_empty(width, width)
    for i, row in enumerate(torch.split(triangle, [*range(1, width + 1)])):
        gram[i, : i + 1] = gram[: i + 1, i] = row
    return gram


def not_counts(counts: Tensor, rows: int | None) -> str:
    """Why these are not how many training rows of each class somebody has.

    >>> not_counts(torch.tensor([2.0, 3.0]), 5), not_counts(torch.tensor([2.0, 3.0]), 9) != ""
    ('', True)
    """
    whole = (counts >= 0).all() and (counts == counts.round()).all() and counts.sum() > 0
    as_told = rows is None or float(counts.sum()) == rows
    return "" if whole and as_told else "its class counts are none"


def not_products(sums: Params) -> str:
    """Why these are no sums of φφᵀ and φyᵀ: the first has no negative direction."""
    gram = unpack(sums["gram"])
    if not is_product(gram) or float(gram[-1, -1]) <= 0:
        return "its products are none of features"
    return ""


def spread_out(rows: Array, classes: int) -> Array:
    """Return all rows, or, where classes are many, as many spread evenly over them as are enough to
    choose a head by.

    >>> import numpy as np
    >>> len(spread_out(np.arange(900), 10)), len(spread_out(np.arange(900), 5000))
    (900, 180)
    """
    return rows[:: max(-(-len(rows) * classes // ENOUGH), 1)]


def solve(gram: Tensor, cross: Tensor, ridge: float) -> Tensor:  # [F, F], [F, K] -> [F, K]
    """R of the ridge regression on standardised features, told in φ's own scale."""
    return solve_each(gram, cross, [ridge])[0]


def solve_each(gram: Tensor, cross: Tensor, ridges: Sequence[float]) -> Tensor:  # -> [R, F, K]
    """The same for several λ.

    The last feature is 1: its row of G has the sums by which the others are centred.
    """
    rows = gram[-1, -1]
    mean = gram[-1, :-1] / rows
    variance = gram.diagonal()[:-1] / rows - mean.square()
    known = variance > 1e-10 * mean.square().clamp(min=1e-10)
    scale = torch.where(known, variance.clamp(min=1e-300).rsqrt(), 0)
    inner = torch.empty_like(gram[:-1, :-1])
    for part, g, m, s in zip(
        *(torch.split(t, BLOCK) for t in (inner, gram[:-1], mean, scale)), strict=True
    ):
        part.copy_((g[:, :-1] - rows * torch.outer(m, mean)) * torch.outer(s, scale))
    target = (cross[:-1] - mean[:, None] * cross[-1]) * scale[:, None]
    found = []
    for solution in _solutions(inner, target, ridges, float(rows)):
        matrix = solution * scale[:, None]
        found.append(torch.cat([matrix, (cross[-1] / rows - mean @ matrix)[None]]))
    return torch.stack(found)


def _solutions(
    inner: Tensor, target: Tensor, ridges: Sequence[float], rows: float
) -> Iterator[Tensor]:
    """(inner + λI)⁻¹·target for each λ, by few columns where `inner` came from few rows."""
    root = low_rank(inner, round(rows) + 1) if len(inner) > max(WIDE, 4 * rows) else None
    if root is not None:
        small, seen = root.T @ root, root.T @ target
        for ridge in ridges:
            ridged = small + ridge * torch.eye(len(small), dtype=small.dtype)
            yield (target - root @ torch.linalg.solve(ridged, seen)) / ridge
        return
    diagonal, lower = inner.diagonal().clone(), torch.empty_like(inner)
    for ridge in ridges:
        inner.diagonal().copy_(diagonal + ridge)
        torch.linalg.cholesky(inner, out=lower)
        yield torch.cholesky_solve(target, lower)


def low_rank(inner: Tensor, most: int) -> Tensor | None:  # [F, F] -> [F, rank]
    """L with LLᵀ = inner, by Cholesky's method with pivots; None where the rank is greater."""
    left = inner.diagonal().clone()
    enough = 1e-12 * left.max()
    root = inner.new_zeros(len(inner), most)
    for rank in range(most):
        pivot = int(left.argmax())
        if left[pivot] <= enough:
            return root[:, :rank]
        column = inner[pivot] - root[:, :rank] @ root[pivot, :rank]
        root[:, rank] = column / left[pivot].sqrt()
        left -= root[:, rank].square()
    return root if left.max() <= enough else None
