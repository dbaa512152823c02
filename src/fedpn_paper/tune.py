"""Chooses budgets: candidates on rows held out from training, never on test rows.

`python -m fedpn_paper.tune DATASET… [--out DIR]` plays the candidates of `candidates.toml`
and writes `DIR/DATASET.json`. A fifth of each client's training rows stands in for its test rows,
so that nothing which the tables are computed from is ever looked at.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.allocator import keep_freed_memory
from fedpn.data.federation import tuning
from fedpn.federated.personalise import Observer, calibrate_all
from fedpn.federated.rounds import Company, play_rounds
from fedpn.routing.thresholds import rows_needed
from fedpn.runs.config import Config, resolve
from fedpn.runs.evaluate import evaluate, look
from fedpn.runs.pipeline import personal_stage
from fedpn.runs.prepare import Prepared, is_routed, prepare
from fedpn_paper.cells import OWN

Tree = dict[str, Any]
SPLIT = 1  # the seed of the rows held out
SCORES = ("log_density", "entropy")
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3)


def candidates(dataset: str) -> dict[str, Tree]:
    """The candidates of a dataset by name: settings, and `personal_steps` to try with each."""
    file = resources.files("fedpn_paper") / "candidates.toml"
    found: dict[str, Tree] = tomllib.loads(file.read_text(encoding="utf-8")).get(dataset, {})
    return found


def try_out(dataset: str, candidate: Tree, out: Path, company: Company) -> list[Tree]:
    """Trains a candidate once and judges every personal stage and switch that it allows."""
    settings = {k: v for k, v in candidate.items() if k != "personal_steps"}
    own = OWN.get(settings.get("algorithm", "fedpn"), {})
    layers = [own, settings, {"dataset": dataset}]
    config = resolve(layers)
    ready = prepare(config)
    ready = ready._replace(federation=tuning(ready.federation, SPLIT))
    out.mkdir(parents=True, exist_ok=True)
    state = play_rounds(config, ready, out, company)
    found = []
    for steps in candidate.get("personal_steps", [config.method.adapt_steps]):
        tried = resolve([*layers, {"method": {"adapt_steps": steps}}])
        people, observe, thresholds = personal_stage(
            tried, ready, state.server, state.memories, company
        )
        for score, share in _switches(tried, ready):
            judge = Observer(observe.model, observe.embed, score)
            if thresholds is not None:
                limits = share, config.routing.abstain
                thresholds = calibrate_all(people, judge, ready.federation.calibration, *limits)
            found.append(_figures(tried, ready, look(ready.federation, people, judge, thresholds)))
            found[-1] |= {"personal_steps": steps}
            if thresholds is not None:
                found[-1] |= {"score": score, "outliers": share}
    return found


def _switches(config: Config, ready: Prepared) -> Iterator[tuple[str, float]]:
    """Every score with every share that the fewest calibration rows allow."""
    if not is_routed(config):
        yield config.routing.score, config.routing.outliers
        return
    fewest = min(map(len, ready.federation.calibration))
    for score in SCORES:
        yield from ((score, share) for share in SHARES if rows_needed(share) <= fewest)


def _figures(config: Config, ready: Prepared, views: list[Any]) -> Tree:
    headline = "switch" if is_routed(config) else config.method.headline
    total = evaluate(ready.federation, views, headline, config.routing.score)
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
            found = try_out(dataset, candidate, place, Company())
            kept[name] = {"candidate": candidate, "found": found}
            store.write_json(path, kept)


if __name__ == "__main__":
    main()
