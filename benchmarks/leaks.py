"""What a curious server, or who gets a model, learns of clients: classes, and rows trained on.

    FEDPN_DATA=… python benchmarks/leaks.py [--seeds 3] [--out results/leaks.json] [--table]

FashionMNIST, 20 clients, three classes each. Uploads and models of FedPN are in `leaks_models.py`;
the sums of a head in closed form are here. What is in the file already is kept. The table is what
docs/leaks.md has.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from leaks_models import (
    CLIENTS,
    FEW,
    Tree,
    average,
    federation_of,
    models,
    of_classes,
    separation,
    settings,
    uploads,
)
from torch import Tensor

from fedpn.core import store
from fedpn.core.trees import Slots, map_slots
from fedpn.data.dataset import Array
from fedpn.federated.gather import Total
from fedpn.federated.heads import make_head
from fedpn.federated.heads.base import SLOT, Seen
from fedpn.federated.heads.features import chunks
from fedpn.federated.heads.noise import Noisy, gram_lengths
from fedpn.federated.heads.sums import unpack
from fedpn.federated.phase import Phase
from fedpn.federated.site import Setup, Site
from fedpn.runs.config import Config
from fedpn.runs.pipeline import headed

NOISES = (0.0, 0.1, 1.0)  # of private means, in units of the clip
ROUNDS, UPLOADS = 30, 5  # of models that are attacked; of uploads
ROWS = (0, 4000)  # of the set: all 70,000, or so many
HEADS = ((100, 0.0), (20, 0.0), (20, 1.0), (20, 4.0))  # filters, noise
SIZES = (30, 100, 300, 1000)  # training rows of each client, where sums are attacked
CLIP = 3.0  # of features, under noise
TARGETS = 3  # clients whose sums are attacked one by one
VIEWS = {
    "single": "server: one upload",
    "mean": "server under `--secure`, or any client: the mean",
    "all but one": "19 clients: the mean less their parts",
}
SUMS = {"single": "one client", "sum": "all 20"}
ALONE = 100  # members of whom all others are known, at most
POOL = 2000  # members that are weighed together with as many other rows, at most


class Shown(Phase):
    """Hands on what the server goes on with."""

    name = "shown"

    def server(self, server: Slots, total: Total) -> Slots:
        return total.sum


def sums(seed: int, filters: int, noise: float, rows: int) -> Tree:
    """Rows in the sums of single clients, and of all, by the head's own phases and noise."""
    head = {"filters": filters, "noise": noise, "clip": CLIP}
    config = settings(seed, algorithm="analytic", head=head)
    setup = federation_of(config, sizes=dict.fromkeys(range(CLIENTS), rows))
    survey, gram = make_head(config.head).phases()[:2]  # type: ignore[union-attr]
    server = config.method.init(setup.model.task, setup.fresh)
    counted = replies(survey, config, setup, server)
    server = survey.server(server, Total(add(counted), CLIENTS))
    sent = replies(gram, config, setup, server)
    spread = noise * gram_lengths(CLIP)({})["sums"]["gram"]

    def attack(part: Slots, members: Array, others: Array, known: bool) -> Tree:
        seen = unpack(shown(gram, part)["sums"]["gram"])
        index = np.concatenate([members, others])
        weights = server[SLOT]["weights"][setup.labels(index)].double()
        phi = features_of(config, setup, server, index)
        found = rows_in(seen, phi, weights, len(members), spread, known)
        if noise:
            none = map_slots(torch.zeros_like, part)
            found["all but one row"] = last_row(gram, none, phi, weights, len(members))
        return found

    train, test = setup.federation.train, setup.federation.test
    single = [attack(sent[c], train[c], test[c][:1000], True) for c in range(TARGETS)]
    rng = np.random.default_rng(seed)
    members, others = (rng.permutation(np.concatenate(use))[:POOL] for use in (train, test))
    known = len(members) == rows * CLIENTS
    true = torch.stack([part["classes"]["counts"] for part in counted])
    counts = torch.stack([shown(survey, part)["classes"]["counts"] for part in counted])
    every = shown(survey, add(counted))["classes"]["counts"].expand(CLIENTS, -1)
    return {
        "single": average(single),
        "sum": attack(add(sent), members, others[: len(members)], known),
        "counts": {
            "right": float((counts.round() == true).double().mean()),
            "error": float((counts - true).abs().mean()),
            "single": of_classes(counts, true > 0),
            "sum": of_classes(every, true > 0),
        },
        "features": len(server[SLOT]["filters"]) * 18 + 1,
        "epsilon": headed(config, "", CLIENTS, {}).get("privacy", {}).get("epsilon"),
    }


def replies(phase: Phase, config: Config, setup: Setup, server: Slots) -> list[Slots]:
    observe = setup.observer(config.method, server)
    sites = [Site(client, setup, 0, observe) for client in range(CLIENTS)]
    return [phase.client(site, server, {}).statistics for site in sites]


def add(parts: list[Slots]) -> Slots:
    return map_slots(lambda *ts: torch.stack(ts).sum(0), *parts)


def shown(phase: Phase, sums: Slots) -> Slots:
    """Sums under the head's own noise, where it has any."""
    if not isinstance(phase, Noisy):
        return sums
    return replace(phase, inner=Shown()).server({}, Total(sums, 1.0))


@torch.no_grad()
def features_of(config: Config, setup: Setup, server: Slots, index: Array) -> Tensor:
    x = setup.data.x[torch.from_numpy(index)]
    seen = Seen(setup.model, config.method.shared(server) or {}, x, x.flatten(1))
    look = make_head(config.head).features  # type: ignore[union-attr]
    return torch.cat([look(part, server[SLOT]) for part in chunks(seen)]).double()


def rows_in(
    gram: Tensor, phi: Tensor, weights: Tensor, members: int, spread: float, known: bool
) -> Tree:
    """By a row's leverage alone; and, of a known pool of candidates, by which rows G is made of."""
    values, vectors = torch.linalg.eigh(gram)
    ridge = 1e-9 * float(gram.diagonal().mean()) + 2 * spread * len(gram) ** 0.5
    turned = (phi @ vectors).square() / (values.clamp(min=0) + ridge)
    scores = {"leverage": -turned.sum(1) * weights}
    if known:  # G = Σ s·w·φφᵀ with s 0 or 1: regressed, towards ½ as far as there is noise
        phi, weights = phi[: 2 * members], weights[: 2 * members]
        kernel = (phi @ phi.T).square() * torch.outer(weights, weights)
        target = ((phi @ gram) * phi).sum(1) * weights - kernel.sum(1) / 2
        # The noise is symmetric, so that Var⟨φφᵀ, noise⟩ ≈ 2·spread²·‖φ‖⁴; that of s is ¼.
        kernel.diagonal().add_(8 * spread**2 + 1e-9 * float(kernel.diagonal().mean()))
        scores["pool"] = torch.linalg.solve(kernel, target)
    return {name: separation(s[:members], s[members:]) for name, s in scores.items()}


def last_row(gram: Phase, none: Slots, phi: Tensor, weights: Tensor, members: int) -> Tree:
    """By the likelihood ratio, for who knows all other rows of the sum: a row, or noise alone."""
    ratios: dict[bool, list[float]] = {True: [], False: []}
    some = [*range(min(members, ALONE)), *range(members, members + 3 * ALONE)]
    rows, columns = torch.tril_indices(phi.shape[1], phi.shape[1])
    for i in some:  # each under noise of its own
        noise = shown(gram, none)["sums"]["gram"]
        row = weights[i] * phi[i][rows] * phi[i][columns]
        there = i < members
        ratios[there].append(float(row @ (noise + row * there) - row @ row / 2))
    return separation(*(torch.tensor(ratios[there]) for there in (True, False)))


def jobs(seeds: int) -> dict[str, Any]:
    """Everything that is measured, by name."""
    found: dict[str, Any] = {}
    for seed in range(seeds):
        for noise in NOISES:
            found[f"uploads/{noise}/s{seed}"] = lambda s=seed, n=noise: uploads(s, n, UPLOADS)
    for rows in ROWS:
        for noise in NOISES:
            found[f"models/{rows}/{noise}"] = lambda r=rows, n=noise: models(seeds, r, n, ROUNDS)
    for seed in range(seeds):
        for filters, noise in HEADS:
            for size in SIZES:
                key = f"sums/{filters}/{noise}/{size}/s{seed}"
                found[key] = lambda s=seed, f=filters, n=noise, r=size: sums(s, f, n, r)
    return found


def tables(found: Tree) -> str:
    """Markdown, means over seeds."""
    return "\n\n".join([_uploads(found), _models(found), _sums(found), _counts(found)])


def _mean(found: Tree, start: str) -> Tree:
    return average([v for k, v in found.items() if k.startswith(start + "/s")])


def _line(*cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _head(*cells: str) -> list[str]:
    return [_line(*cells), "| --- " * len(cells) + "|"]


def _pair(told: Tree, second: str) -> str:
    return f"{told['auroc']:.2f} / {100 * told[second]:.0f} %"


def _uploads(found: Tree) -> str:
    """AUROC over classes / clients whose classes are all found."""
    ways = ("flows", "head bias", "made-up clients")
    later = f"made-up clients, {UPLOADS} rounds"
    lines = _head("noise", f"ε, 1 round / {UPLOADS}", "who sees what", *ways, later)
    for noise in NOISES:
        told = _mean(found, f"uploads/{noise}")
        spent = " / ".join(f"{e:.0f}" for e in told.get("epsilon", [])) or "–"
        for view, title in VIEWS.items():
            cells = [_pair(told["first"][view][way], "exact") for way in ways]
            cells.append(_pair(told["together"][view][ways[2]], "exact"))
            seen = title.replace("server under `--secure`, or any", "any") if noise else title
            lines.append(_line(f"{noise:g}", spent, seen, *cells))
    return "\n".join(lines)


def _models(found: Tree) -> str:
    """AUROC of training rows / of them found at 1 % false alarms."""
    columns = [("shared", s) for s in ("density", "loss", "loss beside others'")]
    columns += [("personal", s) for s in ("density", "loss")]
    names = [f"{model}, {score}" for model, score in columns]
    lines = _head("training rows", "noise", "ε", "accuracy", *names)
    for rows in ROWS:
        for noise in NOISES:
            told = found[f"models/{rows}/{noise}"]
            mean, spent = average(told["seeds"]), told["epsilon"]
            facts = [f"{noise:g}", f"{spent:.0f}" if spent else "–"]
            facts.append(f"{100 * np.mean(told['accuracy']):.0f} %")
            for few, count in (("", f"{told['rows']:.0f}"), (", few", f"{FEW} beside these")):
                cells = [_pair(mean[model + few][score], "tpr") for model, score in columns]
                lines.append(_line(count, *facts, *cells))
    return "\n".join(lines)


def _sums(found: Tree) -> str:
    columns = [f"{size} rows" for size in SIZES]
    lines = _head("features", "noise", "ε", "sums of", "rows told by", *columns)
    for filters, noise in HEADS:
        told = [_mean(found, f"sums/{filters}/{noise}/{size}") for size in SIZES]
        spent = f"{told[0]['epsilon']:.1f}" if noise else "–"
        for whose in ("single", "sum"):
            for way in ("leverage", "pool", "all but one row") if noise else ("leverage", "pool"):
                cells = [_pair(t[whose][way], "tpr") if way in t[whose] else "–" for t in told]
                size = round(told[0]["features"])
                lines.append(_line(size, f"{noise:g}", spent, SUMS[whose], way, *cells))
    return "\n".join(lines)


def _counts(found: Tree) -> str:
    columns = [f"{size} rows" for size in SIZES]
    lines = _head("noise", "of class counts", *columns)
    for filters, noise in HEADS[1:]:
        told = [_mean(found, f"sums/{filters}/{noise}/{size}")["counts"] for size in SIZES]
        rows = {
            "exactly right": [f"{100 * t['right']:.0f} %" for t in told],
            "mean error, rows": [f"{t['error']:.1f}" for t in told],
            "classes, of one client": [_pair(t["single"], "exact") for t in told],
            "classes, of the sum": [_pair(t["sum"], "exact") for t in told],
        }
        lines += [_line(f"{noise:g}", name, *cells) for name, cells in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/leaks.json"))
    parser.add_argument("--table", action="store_true", help="print what there is, measure nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = store.read_json(options.out) if options.out.exists() else {}
    for key, job in jobs(options.seeds).items():
        if key not in found and not options.table:
            found[key] = job()
            store.write_json(options.out, found)
            print(key, flush=True)
    print(tables(found))


if __name__ == "__main__":
    main()
