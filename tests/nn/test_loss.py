"""The stop-gradient of eq. 8, proven term by term."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy as torch_cross_entropy

from fedpn.core.dirichlet import entropy, uncertain_cross_entropy
from fedpn.nn.density import RadialFlows
from fedpn.nn.loss import LOSSES, cross_entropy
from fedpn.nn.posterior import Normalise, PosteriorNetwork


@pytest.fixture
def setting():
    torch.manual_seed(0)
    encoder = torch.nn.Linear(3, 4)
    normalise = Normalise(torch.zeros(1), torch.ones(1))
    network = PosteriorNetwork(normalise, encoder, RadialFlows(4, 5, layers=3), 4, 5)
    return network, torch.randn(8, 3), torch.arange(8) % 5


def _gradients(network, x, y, repaired, **options):
    network.zero_grad()
    loss = LOSSES["repaired" if repaired else "bayesian"]
    loss(network, network.embed(x), y, **options).backward()
    density = torch.cat([p.grad.flatten() for p in network.density.parameters()])
    return density, network.encoder.weight.grad.clone()


@pytest.mark.parametrize("label_flow", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_cross_entropy_and_entropy_never_reach_the_density(setting, label_flow, weight):
    options = {"label_flow": label_flow, "entropy_weight": weight, "repaired": True}
    density, encoder = _gradients(*setting, gamma=0.0, **options)
    assert not density.any()
    assert encoder.abs().min() > 0


@pytest.mark.parametrize("label_flow", [True, False])
def test_likelihood_reaches_density_and_encoder(setting, label_flow):
    network, x, y = setting
    with_it = _gradients(network, x, y, gamma=1.0, label_flow=label_flow, repaired=True)
    without = _gradients(network, x, y, gamma=0.0, label_flow=label_flow, repaired=True)
    network.zero_grad()
    z = network.embed(x)
    if label_flow:
        log_p = network.density.label_log_prob(z, y)[0]
    else:
        log_p = torch.logsumexp(network.density.log_prob(z)[0] + network.prior.log(), -1)
    (-log_p.mean()).backward()
    likelihood = torch.cat([p.grad.flatten() for p in network.density.parameters()])
    torch.testing.assert_close(with_it[0], likelihood)
    torch.testing.assert_close(with_it[1] - without[1], network.encoder.weight.grad)


def test_z_carries_the_cross_entropy_through_the_density(setting):
    """The encoder's gradient is the same with and without the stop-gradient: z is not stopped."""
    stopped = _gradients(*setting, gamma=0.0, repaired=True)[1]
    plain = _gradients(*setting, repaired=False)[1]
    torch.testing.assert_close(stopped, plain)


def test_the_original_loss_moves_the_density(setting):
    assert _gradients(*setting, repaired=False)[0].abs().max() > 0


def test_values_are_the_papers(setting):
    network, x, y = setting
    z = network.embed(x)
    seen, _ = network.density.label_log_prob(z, y)
    posterior = network.evidence(z, y, label_flow=True, repaired=True).posterior
    uce = uncertain_cross_entropy(posterior.alpha, y)
    eq6 = (uce - 0.2 * entropy(posterior.alpha)).mean()
    eq8 = (uce - 0.2 * entropy(posterior.alpha) - 0.01 * seen).mean()
    options = {"entropy_weight": 0.2, "gamma": 0.01}
    torch.testing.assert_close(LOSSES["bayesian"](network, z, y, **options), eq6)
    torch.testing.assert_close(LOSSES["repaired"](network, z, y, **options), eq8)
    torch.testing.assert_close(
        cross_entropy(network, z, y), torch_cross_entropy(network.head(z), y)
    )


def test_density_is_rewarded_up_to_a_cap_alone(setting):
    """Beyond it the likelihood sends no gradient; below, it is the paper's loss."""
    network, x, y = setting
    z = network.embed(x)
    low, free = (LOSSES["repaired"](network, z, y, gamma=1.0, cap=c) for c in (-50.0, math.inf))
    base = LOSSES["repaired"](network, z, y, gamma=0.0)
    torch.testing.assert_close(low, base + 50.0 * z.shape[1])
    torch.testing.assert_close(LOSSES["repaired"](network, z, y, gamma=1.0, cap=1e3), free)
    density, _ = _gradients(network, x, y, True, gamma=1.0, cap=-50.0)
    assert density.abs().max() == 0
