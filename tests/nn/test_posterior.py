"""Posterior networks: shapes, marginals, bounds, and the LeNet-5 of the paper."""

import math

import pytest
import torch

from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.density import RadialFlows
from fedpn.nn.encoders import ENCODERS, LeNet5
from fedpn.nn.posterior import Normalise, PosteriorNetwork, parameters


def blueprint(kind="posterior", shape=(1, 28, 28), classes=10, encoder="lenet5", density="radial"):
    channels = shape[0]
    mean, std = [0.5] * channels, [2.0] * channels
    return Blueprint(kind, shape, classes, encoder, 16, density, 30, mean, std)


def test_lenet5_has_the_papers_parameters():
    assert sum(p.numel() for p in LeNet5((1, 28, 28), 16).parameters()) == 44_936


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (4, 17, 41), (2, 1, 1)])
def test_encoders_take_any_image(encoder, shape):
    model = build_model(blueprint(shape=shape, encoder=encoder), seed=0)
    x = torch.randint(0, 256, (5, *shape), dtype=torch.uint8)
    assert model.embed(parameters(model.network), x).shape == (5, 16)


@pytest.mark.parametrize("density", ["radial", "radial-single"])
def test_the_posterior_is_one_plus_evidence_times_probabilities(density):
    model = build_model(blueprint(density=density), seed=0)
    z = torch.randn(7, 16)
    alpha, log_evidence, log_density, probs = model.posterior(parameters(model.network), z)
    torch.testing.assert_close(probs.sum(1), torch.ones(7))
    budget = log_density + 0.5 * math.log(4 * math.pi) * 16
    torch.testing.assert_close(log_evidence, budget.clamp(-50, 50))
    torch.testing.assert_close(alpha, 1 + log_evidence.exp()[:, None] * probs)


def test_the_marginal_weighs_flows_by_the_prior():
    model = build_model(blueprint(classes=3), seed=0)
    params = parameters(model.network)
    z = torch.randn(7, 16)
    each = model.network.density.log_prob(z)[0]
    prior = torch.tensor([0.25, 0.75, 0.0])
    ours = model.posterior(params | {"prior": prior}, z).log_density
    by_hand = (0.25 * each[:, 0].double().exp() + 0.75 * each[:, 1].double().exp()).log()
    torch.testing.assert_close(ours.double(), by_hand, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("classes", [2, 1000])
def test_finite_from_no_evidence_to_much(size, classes):
    network = PosteriorNetwork(
        Normalise(torch.zeros(1), torch.ones(1)),
        torch.nn.Identity(),
        RadialFlows(16, classes),
        16,
        classes,
    )
    posterior = network.posterior(torch.full((2, 16), size))
    assert all(t.isfinite().all() for t in posterior)
    assert posterior.log_evidence.abs().max() <= 50


def test_the_clamp_keeps_gradients():
    network = PosteriorNetwork(
        Normalise(torch.zeros(1), torch.ones(1)), torch.nn.Identity(), RadialFlows(16, 2), 16, 2
    )
    z = torch.full((1, 16), 1e3, requires_grad=True)
    log_evidence = network.posterior(z).log_evidence
    log_evidence.sum().backward()
    assert log_evidence.item() == -50
    assert z.grad.abs().min() > 0


def test_the_seed_decides_the_first_parameters():
    a, b, c = (parameters(build_model(blueprint(), seed).network) for seed in (0, 0, 1))
    assert all(torch.equal(a[n], b[n]) for n in a)
    assert not torch.equal(a["head.0.weight"], c["head.0.weight"])


def test_the_task_names_parts_by_module():
    task = build_model(blueprint(), seed=0).task
    assert {"head.0.weight", "density.x0"} <= task.head_names
    assert not any(name.startswith("encoder") for name in task.head_names)
    assert task.prior_names == {"prior"}
    assert task.norm_names == frozenset()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_weights_begin_with_lecuns_variance(encoder):
    params = parameters(build_model(blueprint(encoder=encoder), seed=0).network)
    dense = [t for n, t in params.items() if n.startswith("encoder.") and t.ndim > 1]
    for weight in dense:
        size = (weight.square().mean() * weight[0].numel()).item()
        assert size == pytest.approx(1, abs=5 / weight.numel() ** 0.5)
    biases = [t for n, t in params.items() if n.startswith("encoder.") and n.endswith("bias")]
    assert not any(b.any() for b in biases)
