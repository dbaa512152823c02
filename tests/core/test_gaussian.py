"""Gaussians against scipy, and their sums against pooling."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from fedpn.core.gaussian import Sums, fit, sums


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    mix = rng.normal(size=(3, 4, 4)) + 3 * np.eye(4)
    z = np.einsum("nde,ne->nd", mix[y], rng.normal(size=(400, 4))) + 3 * y[:, None]
    return torch.tensor(z), torch.tensor(y)


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_agrees_with_scipy(rows, kind):
    z, y = rows
    ours = fit(sums(z, y, 3), kind, shrinkage=0.0)
    log_prob = ours.log_prob(z)
    for c in range(3):
        covariance = np.cov(z[y == c].numpy().T, bias=True)
        if kind == "diagonal":
            covariance = np.diag(np.diag(covariance))
        right = multivariate_normal(z[y == c].mean(0).numpy(), covariance).logpdf(z.numpy())
        assert log_prob[:, c].numpy() == pytest.approx(right, rel=1e-4, abs=1e-4)
    weights = torch.bincount(y, minlength=3) / len(y)
    by_hand = (log_prob.exp() * weights).sum(1).log()
    torch.testing.assert_close(ours.log_density(z), by_hand)


def test_the_sums_of_clients_add_up(rows):
    z, y = rows
    together = sums(z, y, 3)
    parts = [sums(z[i::4], y[i::4], 3) for i in range(4)]
    added = Sums(*(sum(column) for column in zip(*parts, strict=True)))
    for a, b in zip(together, added, strict=True):
        torch.testing.assert_close(a, b)


def test_absent_classes_and_still_directions_do_no_harm():
    z = torch.zeros(10, 4)
    z[:, 0] = torch.arange(10.0)
    found = fit(sums(z, torch.zeros(10, dtype=torch.long), 3))
    assert found.prior.tolist() == [1, 0, 0]
    assert found.log_density(z).isfinite().all()
    assert found.log_density(z + 1).max() < found.log_density(z).min()


def test_shrinkage_leans_on_the_other_classes(rows):
    z, y = rows
    lone, held = (fit(sums(z, y, 3), "full", s).whiten for s in (0.0, 1.0))
    assert not torch.allclose(lone[0], lone[1])
    torch.testing.assert_close(held[0], held[1])
