"""A user's script, which `make lint` holds to mypy's strictest rules: the types are part of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

import fedpn
from fedpn.core.bounds import Share
from fedpn.core.trees import Slots


@dataclass(frozen=True)
class Wary(fedpn.FedAvg):
    """Takes in only a share of what the clients send."""

    trust: Share = 0.9
    citation: ClassVar[str] = "an example"

    def aggregate(self, server: Slots, mean: Slots, share: float) -> Slots:
        moved = super().aggregate(server, mean, share)
        before = server["model"]
        model = {n: self.trust * w + (1 - self.trust) * before[n] for n, w in mean["model"].items()}
        return moved | {"model": model}


def main(out: Path) -> float:
    run: fedpn.Run = fedpn.run(out, dataset="digits", algorithm=Wary, wary__trust=0.8)
    predictor = run.predictor(client=0)
    answers = predictor(np.zeros((1, 28, 28), np.uint8))
    label: str | None = answers[0].label
    sure: float = answers[0].confidence
    print(label, sure, fedpn.load(out, 0).predict(np.zeros((1, 28, 28), np.uint8)))
    found = fedpn.compare([run, fedpn.open(out)])
    print(found.sentences())
    best = fedpn.sweep("sweep", over={"method__lr": [0.01, 0.1]}, dataset="digits").best
    return float(best["method.lr"])
