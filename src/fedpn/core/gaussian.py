"""Per-class Gaussian densities, fitted after training from sums that could be federated."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["diagonal", "full"]


class Sums(NamedTuple):
    """Sufficient statistics of embeddings per class; those of clients add up."""

    rows: Tensor  # [K]
    total: Tensor  # [K, D]
    squares: Tensor  # [K, D, D]


class Gaussians(NamedTuple):
    """A Gaussian per class, and the frequencies that weigh them."""

    mean: Tensor  # [K, D]
    whiten: Tensor  # [K, D, D], the inverse of the covariance's Cholesky factor
    prior: Tensor  # [K]

    def log_prob(self, z: Tensor) -> Tensor:  # [B, D] -> [B, K]
        """log N(z; μ_c, Σ_c) for every class."""
        white = torch.einsum("kde,bke->bkd", self.whiten, z.unsqueeze(-2) - self.mean)
        log_det = self.whiten.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        dim = z.shape[-1]
        return log_det - 0.5 * white.square().sum(-1) - 0.5 * dim * math.log(2 * math.pi)

    def log_density(self, z: Tensor) -> Tensor:  # [B, D] -> [B]
        """log Σ_c p(c) N(z; μ_c, Σ_c)."""
        return torch.logsumexp(self.log_prob(z) + self.prior.log(), -1)


def sums(z: Tensor, labels: Tensor, classes: int) -> Sums:
    """Add up one client's rows, in double precision: covariances are differences of sums."""
    z = z.double()
    member = torch.nn.functional.one_hot(labels, classes).to(z.dtype)  # [B, K]
    return Sums(member.sum(0), member.T @ z, torch.einsum("bk,bd,be->kde", member, z, z))


def fit(s: Sums, kind: Kind = "full", shrinkage: float = 0.1) -> Gaussians:
    """Fits a Gaussian to each class, its covariance shrunk towards that within all classes.

    A class with few rows (or none, whose frequency is 0) is held up by the others; a millionth of
    the mean variance keeps directions that never vary from being infinitely telling.
    """
    rows = s.rows.clamp(min=1)[:, None]
    mean = s.total / rows
    scatter = s.squares - rows[..., None] * mean[:, :, None] * mean[:, None, :]
    scatter = torch.where((s.rows > 0)[:, None, None], scatter, 0)
    within = scatter.sum(0) / s.rows.sum()
    covariance = (1 - shrinkage) * scatter / rows[..., None] + shrinkage * within
    covariance = torch.where((s.rows > 1)[:, None, None], covariance, within)
    if kind == "diagonal":
        covariance = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
    ridge = 1e-6 * within.diagonal().mean().clamp(min=1e-12)
    eye = torch.eye(mean.shape[1], dtype=mean.dtype, device=mean.device)
    factor = torch.linalg.cholesky(covariance + ridge * eye)
    whiten = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    return Gaussians(mean, whiten, s.rows / s.rows.sum())
