"""Every method with settings of its own, chosen fairly: equal tries on tuning rows, then test rows.

    python benchmarks/fair.py [--sets mnist,fashionmnist] [--out results/fair] [--table]

A set's rows are cut into two halves. On one, each method's four tries (`fair_tries.py`) are run
with one seed; the best is run on the other half with three seeds, which deal rows, draw first
weights and batches. So no test row of any seed was near a choice. A try is rated by what its
models are for: the personal model's accuracy on own rows (InD), the global model's on own and
foreign rows (Mix), and their mean where there are both.

What comes is `results/fair/SET.json`: `about` (rows, clients, rounds, steps, batch, seeds, how
many tries) and `rows`, a list in the table's order. A row has `method` (the name of
`--algorithm`), `family` and its words `steps`, `tries` (each with `settings`, flat keys as after
`--set`; `accuracy` on the tuning half, null where it diverged; `rating`), `chosen` (the settings
of the best try), `seeds` (accuracy on test rows, by seed) and `accuracy`: of each way of
answering (personal or local, global, switch, bayes, oracle) and each of `ind`, `ood`, `mix` the
`mean` over seeds and its standard `error`. All are fractions from 0 to 1. A row without
`accuracy` has not been played to its end. What is there is kept, so that the same command goes
on.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fair_table import table
from fair_tries import FAMILIES, TRIES

from fedpn.core import store
from fedpn.core.allocator import keep_freed_memory
from fedpn.core.errors import UserError
from fedpn.core.settings import nest
from fedpn.core.summary import SETS, standard_error
from fedpn.data.dataset import Dataset
from fedpn.data.sources.own import open_dataset
from fedpn.data.subset import take_some
from fedpn.federated.checkpoint import Journal
from fedpn.federated.listener import Listener
from fedpn.runs.config import resolve
from fedpn.runs.pipeline import judge, play, simulate
from fedpn.runs.prepare import prepare

Tree = dict[str, Any]
SEED, SEEDS, ROWS = 0, (0, 1, 2), 20_000
BUDGET = {"clients": 10, "rounds": 25, "train.steps": 3, "train.batch": 64}
# Whoever answers, answers whatever is shown: the gate against strangers is not compared here.
ALIKE = {"routing.strangers": 0.0, "routing.temperature": "off"}


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Rows to choose by and rows to test on, of each class as many."""
    some = take_some(dataset, ROWS, SEED)
    order = np.argsort(some.y, kind="stable")
    first, second = (np.sort(order[start::2]) for start in (0, 1))
    return tuple(replace(some, x=some.x[rows], y=some.y[rows]) for rows in (first, second))


def measure(dataset: Dataset, method: str, settings: Tree, seed: int) -> Tree:
    """One run: accuracy of each way of answering, on own, foreign and mixed rows."""
    flat = BUDGET | ALIKE | settings
    config = resolve([nest(flat), {"dataset": "", "algorithm": method, "seed": seed}])
    setup = prepare(config, dataset)
    simulator = simulate(config, setup)
    simulator.probe = lambda server: None  # nobody reads how the rounds went
    found = play(config, simulator, Journal(None), Listener())
    views = [found.records[client]["evaluate"] for client in range(simulator.clients)]
    accuracy = judge(config, setup, views)["accuracy"]
    if config.headline == "global":
        del accuracy["personal"]  # which is the global model's
    return {who: {name: round(row[name], 5) for name in SETS} for who, row in accuracy.items()}


def rating(accuracy: Tree) -> float:
    """What a try is chosen by."""
    told = [accuracy[who]["ind"] for who in ("personal", "local") if who in accuracy]
    told += [accuracy["global"]["mix"]] if "global" in accuracy else []
    return round(float(np.mean(told)), 5)


def summary(seeds: Tree) -> Tree:
    """Mean and standard error over seeds."""
    runs = list(seeds.values())
    return {
        who: {
            name: {
                "mean": round(float(np.mean([run[who][name] for run in runs])), 5),
                "error": round(standard_error([run[who][name] for run in runs]), 5),
            }
            for name in SETS
        }
        for who in runs[0]
    }


def play_row(row: Tree, choosing: Dataset, testing: Dataset) -> Iterator[str]:
    """Runs what is missing of a method, and tells each step."""
    family, method = FAMILIES[row["family"]], row["method"]
    for settings in list(family.tries(method))[len(row["tries"]) :]:
        try:
            accuracy = measure(choosing, method, settings, SEED)
            tried = {"accuracy": accuracy, "rating": rating(accuracy)}
        except UserError as why:  # it diverged
            tried = {"accuracy": None, "rating": 0.0, "failed": str(why)}
        row["tries"].append({"settings": settings} | tried)
        yield f"{method} ({row['family']}) tried {settings}: {tried['rating']:.3f}"
    row["chosen"] = max(row["tries"], key=lambda tried: tried["rating"])["settings"]
    for seed in SEEDS:
        if str(seed) not in row["seeds"]:
            row["seeds"][str(seed)] = measure(testing, method, row["chosen"], seed)
            yield f"{method} ({row['family']}) seed {seed}: {rating(row['seeds'][str(seed)]):.3f}"
    row["accuracy"] = summary(row["seeds"])


def empty(dataset: str) -> Tree:
    """What a set's file begins with."""
    about = {"dataset": dataset, "rows_to_choose_by": ROWS // 2, "rows_to_test": ROWS // 2}
    rows = [
        {"method": method, "family": name, "steps": family.title, "tries": [], "seeds": {}}
        for name, family in FAMILIES.items()
        for method in family.methods
    ]
    seeds = {"tries": TRIES, "choosing_seed": SEED, "test_seeds": list(SEEDS)}
    return {"format": 1, "about": about | BUDGET | seeds, "rows": rows}


def wanted(rows: list[Tree], names: str) -> list[Tree]:
    """The rows that are named, in that order; else all."""
    by_name = {f"{row['family']}/{row['method']}": row for row in rows}
    return [by_name[name] for name in names.split(",")] if names else rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sets", default="mnist,fashionmnist")
    options.add_argument("--rows", default="", help="these alone: plain/fedavg,plain/scaffold")
    options.add_argument("--out", type=Path, default=Path("results/fair"))
    options.add_argument("--table", action="store_true", help="print tables, and run nothing")
    asked = options.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in asked.sets.split(","):
        path = asked.out / f"{name}.json"
        results = store.read_json(path) if path.exists() else empty(name)
        if not asked.table:
            choosing, testing = halves(open_dataset(name))
            for row in wanted(results["rows"], asked.rows):
                try:
                    for told in play_row(row, choosing, testing):
                        store.write_json(path, results)
                        print(name, told, flush=True)
                except UserError as why:  # the best try, or its run on test rows, diverged
                    print(name, row["method"], why, flush=True)
                store.write_json(path, results)
        print(table(results))


if __name__ == "__main__":
    main()
