"""The flows against autograd, a grid, finite differences and an independent implementation."""

import math

import pytest
import torch
from torch.func import grad, vmap

from fedpn.nn.density import DENSITIES, RadialFlows
from fedpn.nn.kernels import Radial, radial_log_prob


def _flows(dim, flows, layers=5, scale=1.0):
    torch.manual_seed(0)
    density = RadialFlows(dim, flows, layers).double()
    with torch.no_grad():
        for p in density.parameters():
            p.mul_(scale * 2)
    return density


def _transform(z, x0, a, s):
    """One stack of layers as Rezende & Mohamed write it, layer by layer, row by row."""
    x0, a, s = x0.detach(), a.tolist(), s.tolist()
    log_det = 0.0
    for layer in range(len(a)):
        alpha = math.log1p(math.exp(a[layer]))
        beta = math.log1p(math.exp(s[layer])) - alpha
        difference = z - x0[layer]
        r = difference.norm()
        h = 1 / (alpha + r)
        z = z + beta * h * difference
        log_det = log_det + (len(z) - 1) * torch.log1p(beta * h)
        log_det = log_det + torch.log1p(beta * h - beta * r * h**2)
    return z, log_det


def test_agrees_with_a_layerwise_implementation():
    density, z = _flows(4, 3), torch.randn(6, 4, dtype=torch.float64)
    ours = density.log_prob(z)[0]
    normal = torch.distributions.Normal(0, 1)
    for c in range(3):
        for i in range(6):
            base, log_det = _transform(z[i], *(p[c] for p in density.parameters()))
            right = normal.log_prob(base).sum() + log_det
            assert ours[i, c].item() == pytest.approx(right.item(), rel=1e-12)


def test_log_determinant_is_that_of_autograds_jacobian():
    density, z = _flows(3, 1), torch.randn(3, dtype=torch.float64)
    params = [p[0] for p in density.parameters()]
    jacobian = torch.autograd.functional.jacobian(lambda t: _transform(t, *params)[0], z)
    base = _transform(z, *params)[0]
    log_base = torch.distributions.Normal(0, 1).log_prob(base).sum()
    right = log_base + torch.linalg.slogdet(jacobian).logabsdet
    assert density.log_prob(z)[0].item() == pytest.approx(right.item(), rel=1e-12)


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_integrates_to_one(scale):
    density = _flows(2, 2, layers=8, scale=scale)
    side = torch.linspace(-12, 12, 1201, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        mass = density.log_prob(grid)[0].exp().sum(0) * (side[1] - side[0]) ** 2
    assert mass.tolist() == pytest.approx([1, 1], abs=2e-3)


def test_gradients_by_finite_differences():
    density, z = _flows(5, 4), torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 3, 3, 1, 2, 0])

    def label(z, x0, a, s):
        return radial_log_prob(z, Radial(x0[y], a[y], s[y]))[0]

    def every(z, x0, a, s):
        return radial_log_prob(z.unsqueeze(-2), Radial(x0, a, s))[0]

    for f in (label, every):
        assert torch.autograd.gradcheck(f, (z, *density.parameters()))


def test_the_blind_output_spares_the_flow_and_moves_z():
    density, z = _flows(5, 4), torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    y = torch.arange(6) % 4
    seen, blind = density.label_log_prob(z, y)
    assert torch.equal(seen, blind)
    (to_z,) = torch.autograd.grad(seen.sum(), z, retain_graph=True)
    gz, *rest = torch.autograd.grad(blind.sum(), (z, *density.parameters()))
    assert torch.equal(gz, to_z)
    assert all(not g.any() for g in rest)


def test_the_labels_row_is_a_row_of_all():
    density, z = _flows(5, 4), torch.randn(6, 5, dtype=torch.float64)
    y = torch.tensor([0, 3, 3, 1, 2, 0])
    every, own = density.log_prob(z)[0], density.label_log_prob(z, y)[0]
    assert every.shape == (6, 4)
    torch.testing.assert_close(own, every[torch.arange(6), y])


def test_a_single_flow_serves_every_label():
    density = DENSITIES["radial-single"](5, 10, 3)
    z = torch.randn(6, 5)
    assert density.log_prob(z)[0].shape == (6, 1)
    own = density.label_log_prob(z, torch.tensor([0, 9, 3, 1, 2, 0]))[0]
    torch.testing.assert_close(own, density.log_prob(z)[0][:, 0])


def test_mapping_over_clients_changes_nothing():
    torch.manual_seed(1)
    flows = Radial(torch.randn(3, 4, 6, 5), torch.randn(3, 4, 6), torch.randn(3, 4, 6))
    z, y = torch.randn(3, 8, 5), torch.randint(0, 4, (3, 8))

    def loss(flow, z, y):
        seen, blind = radial_log_prob(z, Radial(*(p[y] for p in flow)))
        return seen.mean() + blind.sin().mean()

    together = vmap(grad(loss))(flows, z, y)
    for i in range(3):
        alone = grad(loss)(Radial(*(p[i] for p in flows)), z[i], y[i])
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a, b[i])


@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e4])
def test_finite_wherever_z_is(size):
    density = RadialFlows(16, 200, 30)
    z = (torch.randn(3, 16).sign() * size).requires_grad_()
    with torch.no_grad():
        density.x0[0, 0] = z[0]  # the very centre of a layer
    seen, _ = density.log_prob(z)
    seen.sum().backward()
    assert seen.isfinite().all()
    assert z.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in density.parameters())
