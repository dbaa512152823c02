"""How much a network works for one input, against PyTorch's own counter; and who is stacked."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedpn.algorithms.base import FedAvg
from fedpn.core.parallel import cohorts_of
from fedpn.federated.simulator import Simulator
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import Classifier, Normalise
from fedpn.nn.task import operations
from settings import setting


def blueprint(encoder, shape, kind="classifier"):
    """A network for inputs of a shape."""
    ones = (1.0,) * shape[0]
    return Blueprint(kind, shape, 10, encoder, 16, "radial", 2, ones, ones)


class Attends(nn.Module):
    """A small attention layer over the rows of an image."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(28, 2, 32, batch_first=True)

    def forward(self, x):
        return self.layer(x[:, 0]).flatten(1)


@pytest.mark.parametrize(
    ("encoder", "shape"), [("lenet5", (1, 28, 28)), ("resnet18", (3, 32, 32)), ("mlp", (30,))]
)
def test_operations_are_those_that_pytorch_counts(encoder, shape):
    network = build_model(blueprint(encoder, shape), 0).network
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.double()("classify", torch.zeros(1, *shape))
    assert operations(network, shape) == counter.get_total_flops() > 1000


def test_networks_of_any_kind_are_counted():
    normalise = Normalise(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    network = Classifier(normalise, Attends(), 28 * 28, 3).eval()
    assert operations(network, (1, 28, 28)) > 2 * 28 * (28 * 32 * 2)  # at least the two layers


def test_long_steps_are_played_one_by_one_and_short_ones_stacked():
    simulator = Simulator(setting("classifier"), FedAvg(), seed=0)
    server = simulator.method.init(simulator.setup.model.task, simulator.setup.fresh)
    assert simulator.cohort(server, 10) > 1
    assert simulator.cohort(server, 10**9) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("overhead", [0.5, 3.0, 20.0])
def test_cohorts_of_uneven_clients_cost_less_than_one_cohort(seed, overhead):
    """In steps of one client, with the overhead of each mapped step."""
    steps = np.random.default_rng(seed).pareto(1.0, 40).astype(np.int64) + 1
    cohorts = cohorts_of(np.arange(40), 80, 1, steps, overhead)
    assert sorted(np.concatenate(cohorts)) == list(range(40))

    def cost(parts):
        return sum(steps[part].max() * (overhead + len(part)) for part in parts)

    assert cost(cohorts) <= cost([np.arange(40)])
