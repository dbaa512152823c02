"""The algorithm without rounds beside FedAvg's: CPU seconds, bytes that a client sends, accuracy.

    FEDPN_DATA=… python benchmarks/analytic.py [--dataset mnist] [--rounds 100]

Both run one after the other in one process, on one thread, with the settings of `fedpn run`.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from fedpn.core.trees import Slots, flatten
from fedpn.federated.phase import Phase, Replies
from fedpn.runs import pipeline
from fedpn.runs.config import resolve


class Counted:
    """Counts what one client's statistics weigh, phase by phase."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}

    def count(self, phase: Phase, statistics: Slots, clients: int) -> None:
        weight = sum(t.numel() * t.element_size() for t in flatten(statistics).values())
        times = phase.rounds if phase.remembers else 1
        self.sent[phase.name] = weight // clients * times


def measure(algorithm: str, dataset: str, rounds: int) -> None:
    """Runs an algorithm, and prints what it cost and what came of it."""
    from fedpn.federated import simulator

    counted, judge = Counted(), simulator.Simulator._judge

    def counting(self, phase, sent, cohort, replies: Replies):  # type: ignore[no-untyped-def]
        counted.count(phase, replies.statistics, len(cohort))
        return judge(self, phase, sent, cohort, replies)

    simulator.Simulator._judge = counting  # type: ignore[method-assign]
    config = resolve([{"dataset": dataset, "algorithm": algorithm, "rounds": rounds}])
    began = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        found = pipeline.run(config, Path(place) / "run")
    spent = time.process_time() - began
    simulator.Simulator._judge = judge  # type: ignore[method-assign]
    rows = {
        who: " ".join(f"{100 * value:.1f}" for value in row.values() if value is not None)
        for who, row in found["accuracy"].items()
    }
    total = sum(counted.sent.values())
    print(f"{algorithm}: {spent:.0f} CPU s, {total / 1e6:.1f} MB a client ({counted.sent})")
    print(f"    InD OOD Mix, %: {rows}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for algorithm in ("analytic", "fedavg"):
        measure(algorithm, options.dataset, options.rounds)


if __name__ == "__main__":
    main()
