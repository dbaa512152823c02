"""What a switch has to decide at each client, and how well a score decides it."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedpn.core import metrics
from fedpn.core.summary import SETS
from fedpn.data.dataset import Array
from fedpn.routing.opinion import Opinion
from fedpn.routing.routers import Router
from fedpn.runs.evaluate import rows_to_judge
from fedpn_paper.opened import Opened


class Pair(NamedTuple):
    """What a client's model and the global one say of the same rows."""

    local: Opinion
    shared: Opinion


class Scene(NamedTuple):
    """One client: what both models say of its rows, and who is right on its test rows."""

    train: Pair
    train_labels: Tensor  # [t]
    calibration: Pair
    test: Pair  # InD, then OOD
    sets: dict[str, Tensor]  # InD, OOD, Mix: places among the test rows
    local_right: Tensor  # [n]
    global_right: Tensor  # [n]


class Scored(NamedTuple):
    """A router's scores of a client's rows."""

    calibration: Tensor  # [c]
    test: Tensor  # [n]


def scenes(opened: Opened) -> Iterator[Scene]:
    """Goes through the clients."""
    rows, setup = opened.setup.federation, opened.setup

    def ask(client: int, mine: Array) -> Pair:
        return Pair(opened.local(client, mine), opened.observe.shared(mine))

    for client in range(rows.clients):
        judged, sets = rows_to_judge(rows, client)
        labels, test = setup.labels(judged).cpu(), ask(client, judged)
        yield Scene(
            train=ask(client, rows.train[client]),
            train_labels=setup.labels(rows.train[client]).cpu(),
            calibration=ask(client, rows.calibration[client]),
            test=test,
            sets=sets,
            local_right=test.local.label == labels,
            global_right=test.shared.label == labels,
        )


def rate(scene: Scene, router: Router) -> Scored:
    """Fits a router to the client's training rows and lets it score the others."""
    state = router.fit(scene.train.local, scene.train.shared, scene.train_labels)
    calibration, test = (
        router.score(pair.local, pair.shared, state) for pair in (scene.calibration, scene.test)
    )
    return Scored(calibration, test)


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
