"""What a switch has to decide at each client, and how well a score decides it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpn.core import dirichlet, metrics
from fedpn.core.summary import SETS
from fedpn.core.trees import Params
from fedpn.data.dataset import Array
from fedpn_paper.opened import Opened, Seen


class Scene(NamedTuple):
    """One client: its calibration rows, its test rows (InD, then OOD), and who is right on them."""

    train: Tensor  # [t, D], embeddings of its training rows
    train_labels: Tensor  # [t]
    calibration: Seen
    test: Seen
    sets: dict[str, Tensor]  # InD, OOD, Mix: places among the test rows
    local_right: Tensor  # [n]
    global_right: Tensor  # [n]


def scenes(opened: Opened) -> Iterator[Scene]:
    """Goes through the clients; embeddings and the global model are asked for once."""
    rows, people, data = opened.ready.federation, opened.people, opened.ready.data

    def look(params: Params, mine: Array) -> Seen:
        belief = opened.look(opened.shared, opened.embed(opened.shared, mine)).posterior.alpha
        seen = opened.look(params, opened.embed(params, mine))
        return seen._replace(belief=dirichlet.mean(belief))

    pooled = np.sort(np.concatenate(rows.test))
    everywhere = opened.look(opened.shared, opened.embed(opened.shared, pooled)).label
    for client in range(rows.clients):
        known, unknown = rows.ind(client), rows.ood(client)
        test = np.concatenate([known, unknown])
        params = people.predictor(client)
        labels = data.y[torch.from_numpy(test)]
        seen = look(params, test)
        place = torch.from_numpy(np.searchsorted(pooled, test))
        mix = np.flatnonzero(np.isin(test, rows.mix(client)))
        yield Scene(
            train=opened.embed(params, rows.train[client]),
            train_labels=data.y[torch.from_numpy(rows.train[client])],
            calibration=look(params, rows.calibration[client]),
            test=seen,
            sets={
                "ind": torch.arange(len(known)),
                "ood": torch.arange(len(known), len(test)),
                "mix": torch.from_numpy(mix),
            },
            local_right=seen.label == labels,
            global_right=everywhere[place] == labels,
        )


def limits(calibration: Tensor, quantiles: Tensor) -> Tensor:  # [n], [Q] -> [Q]
    """The ⌈(n+1)·q⌉-th smallest score; at q = 0 everything is above it, at q = 1 nothing.

    >>> limits(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.5, 0.75, 1.0]))
    tensor([-inf, 2., 3., inf])
    """
    end = calibration.new_tensor([torch.inf])
    ranked = torch.cat([-end, calibration.sort().values, end])
    return ranked[((len(calibration) + 1) * quantiles.double() - 1e-9).ceil().clamp(min=0).long()]


def switch_accuracy(scene: Scene, score: Tensor, limits: Tensor) -> dict[str, Tensor]:
    """Accuracy of the switch on InD, OOD and Mix, for every limit: [Q] each."""
    delegated = score[:, None] > limits
    right = torch.where(delegated, scene.global_right[:, None], scene.local_right[:, None]).double()
    return {name: right[scene.sets[name]].mean(0) for name in SETS}


def references(scene: Scene) -> dict[str, dict[str, float]]:
    """Accuracy of those who need no score: local, global, and the oracle."""
    known = torch.zeros_like(scene.local_right)
    known[scene.sets["ind"]] = True
    who = {
        "local": scene.local_right,
        "global": scene.global_right,
        "oracle": torch.where(known, scene.local_right, scene.global_right),
    }
    return {
        name: {s: float(right[scene.sets[s]].double().mean()) for s in SETS}
        for name, right in who.items()
    }


def separation(scene: Scene, score: Tensor) -> float:
    """AUROC of a score for foreign rows against own ones."""
    return metrics.auroc(score[scene.sets["ind"]], score[scene.sets["ood"]])
