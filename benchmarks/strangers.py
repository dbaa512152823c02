"""Strangers let through while 95 % of known rows pass: the gate beside scores of FedPN's model.

    FEDPN_DATA=… python benchmarks/strangers.py RUNS [--seeds 3] [--out results/strangers.json]

RUNS holds finished FedPN runs, SET-fedpn-sSEED each, as `fedpn paper` leaves them. Thresholds come
from calibration rows, known rows are test rows, of all clients. Other datasets are brought to the
form of the known ones (resized, grey or coloured); known rows that are resized there and back show
how much of that the gate owes to sharpness.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file
from torch import Tensor

from fedpn.core import store
from fedpn.data.sources import datasets
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.gate import gate_phases
from fedpn.federated.listener import Listener
from fedpn.federated.observer import Embedder, view
from fedpn.nn import familiar
from fedpn.routing.scores import SCORES
from fedpn.runs.config import resolve
from fedpn.runs.pipeline import simulate, stored
from fedpn.runs.prepare import prepare

SETS = ("mnist", "fashionmnist", "organamnist", "medicalmnist", "svhn", "cifar10")
MODELS = {
    "entropy (the paper's)": "entropy_of_mean",
    "flow density": "log_density",
    "energy": "energy",
    "msp": "msp",
}
ROWS, KEPT = 2000, 0.95


def strangers(name: str, known: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
    """Eight kinds, and the other sets one by one."""
    shape = known.shape[1:]
    order = torch.from_numpy(np.argsort(rng.random((len(known), shape[1] * shape[2])), axis=1))
    mixed = known.flatten(2).gather(2, order[:, None].expand(-1, shape[0], -1)).reshape(known.shape)
    levels = torch.arange(len(known)) * 255 // (len(known) - 1)
    mean, spread = known.float().mean(0), known.float().std()
    kinds = {
        "noise": torch.from_numpy(rng.integers(0, 256, known.shape).astype(np.uint8)),
        "constant": levels.byte()[:, None, None, None].expand(known.shape).contiguous(),
        "inverted": 255 - known,
        "shuffled": mixed,
        "gaussian": (mean + spread * torch.from_numpy(rng.normal(size=known.shape)))
        .clamp(0, 255)
        .byte(),
        "resized there and back": resized(resized(known, shape[1] // 2), shape[1]),
    }
    for other in SETS:
        if other != name:
            x = torch.from_numpy(datasets.load(other).x)
            x = x[torch.from_numpy(rng.permutation(len(x))[: len(known)])]
            kinds[other] = resized(coloured(x, shape[0]), shape[1])
    return kinds


def coloured(x: Tensor, channels: int) -> Tensor:
    if x.shape[1] == channels:
        return x
    return x.expand(-1, 3, -1, -1) if channels == 3 else x.float().mean(1, keepdim=True).byte()


def resized(x: Tensor, size: int) -> Tensor:
    if x.shape[2] == size:
        return x
    new = F.interpolate(x.float(), (size, size), mode="bilinear", antialias=True)
    return new.round().clamp(0, 255).byte()


def measure(run: Path, name: str) -> dict[str, Any]:
    """Shares let through, by score and kind."""
    config = resolve([stored(run)])
    setup = prepare(config)
    first = config.method.init(setup.model.task, setup.fresh)
    phases, simulator = gate_phases(1 - KEPT), simulate(config, setup)
    gate = conduct(phases, simulator, first, Journal(None), Listener()).server["gate"]
    shared = load_file(run / "shared.safetensors")
    views = {n.removeprefix("view/"): t for n, t in gate.items() if n.startswith("view/")}
    fitted = {n.removeprefix("fitted/"): t for n, t in gate.items() if n.startswith("fitted/")}

    def scores(x: Tensor) -> dict[str, Tensor]:
        opinion = view(setup.model, shared, Embedder(setup.model, x, shared)(np.arange(len(x))))
        found = {title: SCORES[score](opinion) for title, score in MODELS.items()}
        away = familiar.distance(familiar.statistics(x, views), fitted)
        return {"gate": away - gate["limit"]} | found

    rng = np.random.default_rng([config.seed, 31])
    rows = [np.concatenate(use) for use in (setup.federation.calibration, setup.federation.test)]
    held, test = (setup.data.x[torch.from_numpy(rng.permutation(r)[:ROWS])] for r in rows)
    limits = {title: float(s.quantile(KEPT)) for title, s in scores(held).items()} | {"gate": 0.0}
    kinds = {"known rows": test} | strangers(name, test, rng)
    found: dict[str, dict[str, float]] = {title: {} for title in limits}
    for kind, x in kinds.items():
        for title, s in scores(x).items():
            found[title][kind] = round(float((s <= limits[title]).double().mean()), 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/strangers.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    for seed in range(options.seeds):
        for name in SETS:
            key, run = f"{name}-s{seed}", options.runs / f"{name}-fedpn-s{seed}"
            if key not in found and run.exists():
                found[key] = measure(run, name)
                store.write_json(options.out, found)
                print(key, json.dumps(found[key]["gate"]), flush=True)


if __name__ == "__main__":
    main()
