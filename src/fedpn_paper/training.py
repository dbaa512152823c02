"""The rounds of a run alone, for experiments that do something else with what they come to."""

from pathlib import Path
from typing import NamedTuple

from fedpn.core.trees import Slots
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.listener import Listener
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Setup
from fedpn.federated.training import Train
from fedpn.runs.config import Config
from fedpn.runs.identity import identity_of
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import simulate
from fedpn.runs.prepare import fingerprint


class Trained(NamedTuple):
    """A federation after its rounds, before any client goes on alone."""

    config: Config
    simulator: Simulator
    server: Slots

    @property
    def setup(self) -> Setup:
        return self.simulator.setup


def train(config: Config, setup: Setup, out: Path, listener: Listener) -> Trained:
    """Plays the rounds into `out`, or goes on with them."""
    out.mkdir(parents=True, exist_ok=True)
    simulator = simulate(config, setup, out)
    identity = identity_of(config, fingerprint(setup.dataset))
    journal = Journal(out, identity.facts, say=listener.say)
    rounds = [phase for phase in phases_of(config) if isinstance(phase, Train)]
    first = config.method.init(setup.model.task, setup.fresh)
    found = conduct(rounds, simulator, first, journal, listener, config.faults.patience)
    return Trained(config, simulator, found.server)
