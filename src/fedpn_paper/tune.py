"""Chooses budgets: candidates on rows held out from training, never on test rows.

`python -m fedpn_paper.tune DATASET… [--out DIR]` plays the candidates of `candidates.toml`
and writes `DIR/DATASET.json`. A fifth of each client's training rows stands in for its test rows,
so that nothing which the tables are computed from is ever looked at.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.allocator import keep_freed_memory
from fedpn.data.federation import tuning
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Setup
from fedpn.federated.training import Train
from fedpn.routing.thresholds import rows_needed
from fedpn.runs.config import Config
from fedpn.runs.measure import evaluate
from fedpn.runs.phases import phases_of
from fedpn.runs.prepare import prepare
from fedpn_paper.cells import OWN, PAPER, by_switch, without_preset
from fedpn_paper.score_names import short
from fedpn_paper.training import Trained, train

Tree = dict[str, Any]
SPLIT = 1  # the seed of the rows held out
ROUTERS = ("log_density", "dirichlet_entropy")  # tried where a candidate leaves it open
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3)


def candidates(dataset: str) -> dict[str, Tree]:
    """The candidates of a dataset by name: settings, and `personal_steps` to try with each."""
    file = resources.files("fedpn_paper") / "candidates.toml"
    found: dict[str, Tree] = tomllib.loads(file.read_text(encoding="utf-8")).get(dataset, {})
    return found


def try_out(dataset: str, candidate: Tree, out: Path, listener: Listener) -> list[Tree]:
    """Trains a candidate once and judges every personal stage and switch that it allows."""
    settings = {k: v for k, v in candidate.items() if k != "personal_steps"}
    own = OWN.get(settings.get("algorithm", "fedpn"), {})
    config = by_switch(without_preset(dataset, [PAPER, own, settings]))
    setup = prepare(config)
    setup = replace(setup, federation=tuning(setup.federation, SPLIT))
    trained = train(config, setup, out, listener)
    found: list[Tree] = []
    for steps in candidate.get("personal_steps", [config.method.adapt_steps]):
        method = replace(config.method, adapt_steps=steps)
        found += _judge(trained._replace(config=replace(config, method=method)), listener)
    return found


def _judge(trained: Trained, listener: Listener) -> Iterator[Tree]:
    """Plays the personal stage once, and judges it with every switch."""
    config, simulator, server = trained
    simulator.members.clear()  # of a personal stage before this one
    adapt = [phase for phase in phases_of(config) if isinstance(phase, Adapt)]
    simulator.visit(adapt, server, listener)
    for tried in _switches(config, trained.setup):
        rest = [p for p in phases_of(tried) if not isinstance(p, Train | Adapt)]
        records = simulator.visit(rest, server, listener)
        found = _figures(tried, simulator, records) | {"personal_steps": config.method.adapt_steps}
        if tried.router:
            found |= {"score": short(tried.router), "outliers": tried.routing.outliers}
        yield found


def _switches(config: Config, setup: Setup) -> Iterator[Config]:
    """The settings with every share that the fewest calibration rows allow.

    A router that the candidate names is kept; else those of the paper are tried.
    """
    if not config.router:
        yield config
        return
    fewest = min(map(len, setup.federation.calibration))
    for router in ROUTERS if config.routing.router == "auto" else (config.router,):
        for share in SHARES:
            if rows_needed(share) <= fewest:
                routing = replace(config.routing, router=router, outliers=share)
                yield replace(config, routing=routing)


def _figures(config: Config, simulator: Simulator, records: dict[int, dict[str, Any]]) -> Tree:
    views = [records[client]["evaluate"] for client in range(simulator.clients)]
    total = evaluate(simulator.setup.federation, views, config.headline, config.router)
    figures = {
        who: {name: round(100 * value, 2) for name, value in row.items()}
        for who, row in total["accuracy"].items()
    }
    routing = total.get("routing", {})
    return {"accuracy": figures} | {k: routing[k] for k in ("auroc", "gap_closed") if k in routing}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fedpn_paper.tune")
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/tuning"))
    options = parser.parse_args()
    keep_freed_memory()
    for dataset in options.datasets:
        path = options.out / f"{dataset}.json"
        kept: Tree = store.read_json(path) if path.exists() else {}
        for name, candidate in candidates(dataset).items():
            if kept.get(name, {}).get("candidate") == candidate:
                continue
            print(f"{dataset}: {name}", file=sys.stderr, flush=True)
            place = options.out / "runs" / f"{dataset}-{name}"
            found = try_out(dataset, candidate, place, Listener())
            kept[name] = {"candidate": candidate, "found": found}
            store.write_json(path, kept)


if __name__ == "__main__":
    main()
