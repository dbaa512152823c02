"""Small federations in float64, for comparing engines, cohorts and oracles."""

import numpy as np
import torch

from fedpn.core.task import Data
from fedpn.federated.simulator import Engine, begin
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import parameters
from fedpn.nn.task import make_model
from fedpn.federated.settings import TrainSettings

SIZES = (40, 9, 25, 5, 17)  # unequal, and less than a batch


def setting(kind, norm=False, classes=4):
    """Five clients of unequal size; with `norm`, images and a LeNet-5 with BatchNorm."""
    torch.manual_seed(0)
    shape, encoder = ((1, 16, 16), "lenet5") if norm else ((3,), "mlp")
    mean, std = ([0.1], [1.5]) if norm else ([0.1, 0.2, 0.3], [1.0, 2.0, 0.5])
    b = Blueprint(
        kind, shape, classes, encoder, 5, "radial", 3, mean, std, "batch" if norm else "auto"
    )
    drawn = build_model(b, 0, {"name": "repaired", "gamma": 0.05})
    model = make_model(drawn.network.double(), drawn.loss)
    count = sum(SIZES)
    data = Data(torch.randn(count, *shape).double(), torch.randint(0, classes, (count,)))
    rows = tuple(np.split(np.arange(count), np.cumsum(SIZES)[:-1]))
    return model, data, rows


def play(algorithm, model, data, rows, *more, count=3, path=None, **options):
    """Plays some rounds and returns the last state."""
    params = parameters(model.network)
    state = begin(algorithm, model.task, params, [data.y[r] for r in rows], path)
    config = TrainSettings(**({"batch": 8, "steps": 0, "epochs": 1} | options))
    engine = Engine(algorithm, model.task, data, rows, 0, config, *more)
    *_, (last, _) = engine.rounds(state, count)
    return last
