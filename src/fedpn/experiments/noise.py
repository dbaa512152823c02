"""Federations whose labels 5-9 are redrawn at random, as in the paper's appendix."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedpn.config import Config
from fedpn.data.dataset import Array
from fedpn.data.own import open_dataset
from fedpn.data.shift import noisy_labels
from fedpn.dirichlet import Posterior
from fedpn.personalise import CHUNK, Embedder
from fedpn.prepare import Prepared, assemble, deal_rows
from fedpn.rounds import Company, play_rounds

NOISY = (5, 6, 7, 8, 9)


class Held(NamedTuple):
    """What the global model says of all test rows, and which of them are of a noisy class."""

    posterior: Posterior
    noisy: Array  # [n], by the class before the noise
    labels: Array  # [n], the class before the noise


def prepare_noisy(config: Config) -> tuple[Prepared, Array]:
    """Redraws the labels, then deals rows by them, in the paper's order; returns the old labels."""
    dataset = open_dataset(config.dataset)
    changed = noisy_labels(dataset.y, NOISY, config.seed)
    return assemble(config, *deal_rows(config, replace(dataset, y=changed))), dataset.y


def federate_noisy(config: Config, out: Path, company: Company) -> tuple[Prepared, Held]:
    """Plays the rounds into `out`, or goes on with them, and asks the global model."""
    ready, before = prepare_noisy(config)
    out.mkdir(parents=True, exist_ok=True)
    state = play_rounds(config, ready, out, company)
    shared = config.method.shared(state.server)
    assert shared is not None
    rows = np.sort(np.concatenate(ready.federation.test))
    with torch.no_grad():
        z = Embedder(ready.model, ready.data.x, shared)(shared, rows)
        parts = [ready.model.posterior(shared, part) for part in torch.split(z, CHUNK)]
    posterior = Posterior(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))
    return ready, Held(posterior, np.isin(before[rows], NOISY), before[rows])
