"""Are promises kept? Risk promised and measured, client by client.

    python benchmarks/promises.py [--sets mnist,heart] [--seeds 3] [--out results/promises.json]

Six sets of images with twenty clients each, and two tables: heart disease at four hospitals and
Adult by 42 countries, from `$FEDPN_TABLES`. Every run promises that at most 5 % (tables: 10 %) of
its answers are wrong, with 90 % confidence, and that sets of classes miss the true one in at most
10 %. Results that are in the file already are kept, so that an interrupted run can go on.
"""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from scipy.stats import binom

from fedpn.core import store
from fedpn.runs import pipeline
from fedpn.runs.config import resolve

TABLES = {"heart": ("disease", "hospital"), "adult": ("income", "country")}
SETS = ("medicalmnist", "organamnist", "fashionmnist", "mnist", "svhn", "cifar10", *TABLES)
MISS = 0.1


def risk_of(name: str) -> float:
    return 0.1 if name in TABLES else 0.05


def table_file(name: str, place: Path) -> str:
    """The table as one file with a column for the client and one for the label."""
    tables = Path(os.environ["FEDPN_TABLES"])
    if name == "adult":
        return str(tables / "adult.csv")
    lines: list[str] = []
    for file in sorted((tables / "heart").glob("*.csv")):
        head, *rows = file.read_text().splitlines()
        lines = lines or [head.removesuffix("num") + "disease,hospital"]
        for row in rows:
            cells, _, num = row.rpartition(",")
            lines.append(f"{cells},{'no' if num == '0' else 'yes'},{file.stem}")
    (place / "heart.csv").write_text("\n".join(lines) + "\n")
    return str(place / "heart.csv")


def measure(dataset: str, algorithm: str, seed: int) -> dict:
    """One run: of each client, what was answered and how much of it wrongly."""
    routing = {"risk": risk_of(dataset), "sets": MISS, "rule": "bayes"}
    config = {"dataset": dataset, "algorithm": algorithm, "seed": seed, "routing": routing}
    with tempfile.TemporaryDirectory() as place:
        if dataset in TABLES:
            config["dataset"] = table_file(dataset, Path(place))
            config["data"] = dict(zip(("label", "client"), TABLES[dataset], strict=True))
        found = pipeline.run(resolve([config]), Path(place) / "run")
    clients = [
        {"promise": c["promise"], "sets": c["sets"], "remarks": c["remarks"]}
        for c in found["per_client"]
    ]
    return {"coverage": found["abstention"]["coverage"], "clients": clients}


def table(results: dict) -> str:
    """A row for each set: how often clients' measured risk is above the promise."""
    head = (
        "| set | promised | answered, own / foreign | wrong of these, mean "
        "| clients above, own / foreign | beyond chance, own / foreign "
        "| sets that miss, own / foreign | classes in a set |"
    )
    lines = [head, "| --- " * 8 + "|"]
    for name in dict.fromkeys(key.rsplit("-s", 1)[0] for key in results):
        clients = [c for k, r in results.items() if k.startswith(f"{name}-s") for c in r["clients"]]
        cells, risk = [], risk_of(name.partition("-")[0])
        for side in ("own", "foreign"):
            told = [c["promise"][side] for c in clients if c["promise"][side]["rows"]]
            above = [t for t in told if t["wrong"] > risk]
            beyond = [t for t in above if chance(t, risk) < 0.05]  # test rows are few
            kept = [c["sets"][side] for c in clients]
            cells.append(
                (
                    f"{100 * mean([c['promise'][side]['answered'] for c in clients]):.1f} %",
                    f"{100 * mean([t['wrong'] for t in told]):.2f} %",
                    f"{len(above)} of {len(told)}",
                    str(len(beyond)),
                    f"{100 * mean([k['missed'] for k in kept]):.1f} %",
                    f"{mean([k['size'] for k in kept]):.2f}",
                )
            )
        pairs = [" / ".join(pair) for pair in zip(*cells, strict=True)]
        lines.append(f"| {name} | {100 * risk:g} % | " + " | ".join(pairs) + " |")
    return "\n".join(lines)


def chance(told: dict, risk: float) -> float:
    """Of at least so many mistakes, if the promise were kept just so."""
    return float(binom.sf(round(told["wrong"] * told["rows"]) - 1, told["rows"], risk))


def mean(values: list) -> float:
    there = [v for v in values if v is not None]
    return sum(there) / max(len(there), 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sets", default=",".join(SETS))
    options.add_argument("--algorithms", default="analytic")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", type=Path, default=Path("results/promises.json"))
    asked = options.parse_args()
    torch.set_num_threads(1)
    results = store.read_json(asked.out) if asked.out.exists() else {}
    for seed in range(asked.seeds):
        for algorithm in asked.algorithms.split(","):
            for name in asked.sets.split(","):
                key = f"{name}-{algorithm}-s{seed}"
                if key not in results:
                    results[key] = measure(name, algorithm, seed)
                    store.write_json(asked.out, dict(sorted(results.items())))
                    print(key, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
