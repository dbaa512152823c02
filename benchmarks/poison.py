"""Poisoned federations: attacks against means, on FashionMNIST.

    python benchmarks/poison.py [--seeds 1] [--rounds 50] [--out results/poison.json]

Twenty clients, four of which mean harm; FedAvg with a fresh optimiser each round. Robust means are
prepared for a fifth of liars. What is there already is kept, so that it can go on.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from fedpn.core import store
from fedpn.runs import pipeline
from fedpn.runs.config import resolve

ATTACKS = ("none", "label_flip", "sign_flip", "scale", "noise", "backdoor")
RULES = {
    "mean": {},
    "median": {"aggregation": {"rule": "median"}},
    "trimmed": {"aggregation": {"rule": "trimmed"}},
    "krum": {"aggregation": {"rule": "krum"}},
    "multikrum": {"aggregation": {"rule": "multikrum"}},
    "clipped": {"aggregation": {"rule": "private", "noise": 0.0, "clip": 1.0}},
}
DEALT = ("iid", "classes")


def measure(dealt: str, attack: str, rule: str, seed: int, rounds: int) -> dict:
    """One run: how often the global model is right, and taken in by marked pictures."""
    common = {
        "dataset": "fashionmnist",
        "algorithm": "fedavg",
        "rounds": rounds,
        "seed": seed,
        "data": {"partition": dealt},
        "faults": {"attack": attack},
        "method": {"optimizer_state": "reset"},
        "routing": {"strangers": 0.0, "temperature": "off"},
    }
    with tempfile.TemporaryDirectory() as place:
        try:
            found = pipeline.run(resolve([common, RULES[rule]]), Path(place) / "run")
        except ValueError as error:  # told in words: the model was driven beyond all bounds
            return {"accuracy": None, "taken_in": None, "ended": str(error)}
    row = found["accuracy"]["global"]
    accuracy = row["ind"] if row["mix"] is None else row["mix"]
    return {"accuracy": accuracy, "taken_in": found.get("attack", {}).get("taken_in")}


def table(results: dict, dealt: str) -> str:
    """Accuracy in %, mean over seeds; of the backdoor, how many marked pictures are taken in."""
    lines = [f"| {dealt} | {' | '.join(ATTACKS)} | taken in |", "| --- " * (len(ATTACKS) + 2) + "|"]
    for rule in RULES:
        cells = []
        for attack in ATTACKS:
            found = of(results, dealt, attack, rule)
            values = [r["accuracy"] or 0.0 for r in found]
            ended = any(r["accuracy"] is None for r in found)
            cells.append(f"{100 * sum(values) / len(values):.1f}{'*' * ended}" if values else "–")
        fooled = [r["taken_in"] for r in of(results, dealt, "backdoor", rule) if r["accuracy"]]
        cells.append(f"{100 * sum(fooled) / len(fooled):.1f}" if fooled else "–")
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of(results: dict, dealt: str, attack: str, rule: str) -> list[dict]:
    return [r for key, r in results.items() if key.startswith(f"{dealt}-{attack}-{rule}-s")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("results/poison.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = store.read_json(options.out) if options.out.exists() else {}
    for seed in range(options.seeds):
        for dealt in DEALT:
            for attack in ATTACKS:
                for rule in RULES:
                    key = f"{dealt}-{attack}-{rule}-s{seed}"
                    if key not in results:
                        results[key] = measure(dealt, attack, rule, seed, options.rounds)
                        store.write_json(options.out, results)
                        print(key, results[key], flush=True)
    for dealt in DEALT:
        print(f"\n{table(results, dealt)}")


if __name__ == "__main__":
    main()
