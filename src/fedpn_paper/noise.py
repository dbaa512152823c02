"""Federations whose labels 5-9 are redrawn at random, as in the paper's appendix."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core.dirichlet import Posterior
from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn.data.shift import noisy_labels
from fedpn.data.sources.own import open_dataset
from fedpn.federated.personalise import CHUNK, Embedder
from fedpn.federated.rounds import Company, play_rounds
from fedpn.federated.simulator import State
from fedpn.runs.config import Config
from fedpn.runs.prepare import Prepared, assemble, deal_rows

NOISY = (5, 6, 7, 8, 9)


class Held(NamedTuple):
    """What a model says of test rows, and which of them are of a noisy class."""

    z: Tensor  # [n, D]
    posterior: Posterior
    noisy: Array  # [n], by the class before the noise
    labels: Array  # [n], the class before the noise


def prepare_noisy(config: Config, dealt_first: bool = False) -> tuple[Prepared, Array]:
    """Redraws the labels and deals rows by them, or the other way round; returns the old labels.

    Dealt first, a client has whole classes, some of them under random labels; dealt by the noise,
    its labels are few, and each of them may stand for any noisy class.
    """
    dataset = open_dataset(config.dataset)
    changed = replace(dataset, y=noisy_labels(dataset.y, NOISY, config.seed))
    _, federation = deal_rows(config, dataset if dealt_first else changed)
    return assemble(config, changed, federation), dataset.y


def train_noisy(
    config: Config, out: Path, company: Company, dealt_first: bool = False
) -> tuple[Prepared, Array, State]:
    """Plays the rounds into `out`, or goes on with them; returns the old labels too."""
    ready, before = prepare_noisy(config, dealt_first)
    out.mkdir(parents=True, exist_ok=True)
    return ready, before, play_rounds(config, ready, out, company)


def ask(ready: Prepared, params: Params, z: Tensor, rows: Array, before: Array) -> Held:
    """Asks a model for the embeddings of some rows."""
    with torch.no_grad():
        parts = [ready.model.posterior(params, part) for part in torch.split(z, CHUNK)]
    posterior = Posterior(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))
    return Held(z.cpu(), posterior, np.isin(before[rows], NOISY), before[rows])


def ask_global(config: Config, ready: Prepared, before: Array, state: State) -> Held:
    """Asks the global model for all test rows."""
    shared = config.method.shared(state.server)
    assert shared is not None
    rows = np.sort(np.concatenate(ready.federation.test))
    z = Embedder(ready.model, ready.data.x, shared)(shared, rows)
    return ask(ready, shared, z, rows, before)
