"""Federations whose labels 5-9 are redrawn at random, as in the paper's appendix."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpn.data.dataset import Array
from fedpn.data.shift import noisy_labels
from fedpn.data.sources.own import open_dataset
from fedpn.federated.listener import Listener
from fedpn.federated.site import Setup
from fedpn.routing.opinion import Opinion
from fedpn.runs.config import Config
from fedpn.runs.prepare import assemble, deal_rows
from fedpn_paper.training import Trained, train

NOISY = (5, 6, 7, 8, 9)


class Held(NamedTuple):
    """What a model says of test rows, and which of them are of a noisy class."""

    opinion: Opinion
    noisy: Array  # [n], by the class before the noise
    labels: Array  # [n], the class before the noise


class Noisy(NamedTuple):
    """A federation trained on noisy labels, and the labels before the noise."""

    trained: Trained
    before: Array

    def hold(self, opinion: Opinion, rows: Array) -> Held:
        """Sets what a model says of rows beside what they were."""
        labels = self.before[rows]
        return Held(opinion, np.isin(labels, NOISY), labels)


def prepare_noisy(config: Config, dealt_first: bool = False) -> tuple[Setup, Array]:
    """Redraws the labels and deals rows by them, or the other way round; returns the old labels.

    Dealt first, a client has whole classes, some of them under random labels; dealt by the noise,
    its labels are few, and each of them may stand for any noisy class.
    """
    dataset = open_dataset(config.dataset)
    changed = replace(dataset, y=noisy_labels(dataset.y, NOISY, config.seed))
    _, federation = deal_rows(config, dataset if dealt_first else changed)
    return assemble(config, changed, federation), dataset.y


def train_noisy(config: Config, out: Path, listener: Listener, dealt_first: bool = False) -> Noisy:
    """Plays the rounds into `out`, or goes on with them."""
    setup, before = prepare_noisy(config, dealt_first)
    return Noisy(train(config, setup, out, listener), before)


def ask_global(noisy: Noisy) -> Held:
    """Asks the global model for all test rows."""
    trained = noisy.trained
    rows = np.sort(np.concatenate(trained.setup.federation.test))
    observe = trained.setup.observer(trained.config.method, trained.server)
    return noisy.hold(observe.shared(rows), rows)
