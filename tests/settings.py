"""Small federations in float64, for comparing engines, cohorts and oracles."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedpn.core.task import Data
from fedpn.core.trees import Slots
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation
from fedpn.federated.checkpoint import Journal, State
from fedpn.federated.conductor import conduct
from fedpn.federated.listener import Listener
from fedpn.federated.memories import Memories
from fedpn.federated.settings import FaultSettings, TrainSettings
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Network, Setup
from fedpn.federated.training import Train
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import parameters
from fedpn.nn.task import make_model

SIZES = (40, 9, 25, 5, 17)  # unequal, and less than a batch
HELD = 4  # rows of each client that it does not train on: half to calibrate, half to test


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
    trained, count = sum(SIZES), sum(SIZES) + HELD * len(SIZES)
    data = Data(torch.randn(count, *shape).double(), torch.randint(0, classes, (count,)))
    rows = tuple(np.split(np.arange(trained), np.cumsum(SIZES)[:-1]))
    held = np.arange(trained, count).reshape(len(SIZES), 2, HELD // 2)
    x, y = data.x.numpy(), data.y.numpy()
    federation = Federation(y, rows, tuple(held[:, 0]), tuple(held[:, 1]), 0)
    dataset = Dataset("toy", x, y, tuple(map(str, range(classes))))
    return Setup(dataset, federation, data, Network(b, model, parameters(model.network)))


def with_inputs(setup, x):
    """The same federation, the rows of which look otherwise."""
    return replace(setup, data=setup.data._replace(x=x))


def work_of(**options):
    return TrainSettings(**({"batch": 8, "steps": 0, "epochs": 1} | options))


@dataclass
class Kept(Journal):
    """A journal in memory: every line, every state."""

    lines: list[dict] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def write(self, line):
        self.lines.append(line)
        super().write(line)

    def save(self, state, kept, about):
        self.states.append(state)
        super().save(state, kept, about)


@dataclass(frozen=True)
class Played:
    """A federation after its rounds."""

    server: Slots
    simulator: Simulator
    lines: list[dict]

    @property
    def memories(self) -> Memories:
        return self.simulator.memories


def play(
    method,
    setup,
    faults=None,
    aggregation=None,
    count=3,
    path=None,
    cohort=0,
    journal=None,
    listener=None,
    **options,
):
    """Plays some rounds."""
    faults, journal = faults or FaultSettings(), journal or Kept(None, every=1)
    simulator = Simulator(setup, method, 0, faults, aggregation, cohort, path)
    phase = Train(method, work_of(**options), 0, count, faults.stragglers)
    first = method.init(setup.model.task, setup.fresh)
    found = conduct([phase], simulator, first, journal, listener or Listener(), faults.patience)
    return Played(found.server, simulator, journal.lines)
