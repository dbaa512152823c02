"""The sums of a ridge regression: one client's, how they travel, and what they come to."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedpn.core.products import is_product
from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn.federated.heads.base import Seen
from fedpn.federated.heads.features import Features, chunks
from fedpn.federated.site import Site


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
        start += len(part.x)
        phi = features(part, state).double()
        weighted = phi * weights[truth][:, None]
        gram = gram + weighted.T @ phi
        cross = cross + weighted.T @ one_hot(truth, len(weights)).double()
    return gram.cpu(), cross.cpu()


def pack(gram: Tensor) -> Tensor:
    """The lower triangle of a symmetric matrix."""
    rows, columns = torch.tril_indices(*gram.shape)
    return gram[rows, columns]


def unpack(triangle: Tensor) -> Tensor:
    """Undoes `pack`.

    >>> unpack(torch.tensor([1.0, 2.0, 3.0]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    size = int((8 * len(triangle) + 1) ** 0.5 - 1) // 2
    rows, columns = torch.tril_indices(size, size)
    gram = triangle.new_zeros(size, size)
    gram[rows, columns] = triangle
    gram[columns, rows] = triangle
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


def solve(gram: Tensor, cross: Tensor, ridge: float) -> Tensor:  # [F, F], [F, K] -> [F, K]
    """R of the ridge regression on standardised features, told in φ's own scale.

    The last feature is 1: its row of G has the sums by which the others are centred.
    """
    rows = gram[-1, -1]
    mean = gram[-1, :-1] / rows
    variance = gram.diagonal()[:-1] / rows - mean.square()
    known = variance > 1e-10 * mean.square().clamp(min=1e-10)
    scale = torch.where(known, variance.clamp(min=1e-300).rsqrt(), 0)
    centred = gram[:-1, :-1] - rows * torch.outer(mean, mean)
    inner = centred * torch.outer(scale, scale) + ridge * torch.eye(len(mean), dtype=gram.dtype)
    target = (cross[:-1] - mean[:, None] * cross[-1]) * scale[:, None]
    matrix = torch.cholesky_solve(target, torch.linalg.cholesky(inner)) * scale[:, None]
    return torch.cat([matrix, (cross[-1] / rows - mean @ matrix)[None]])
