"""What FedPN's uploads and models tell of clients: their classes, and the rows they trained on.

`uploads`: a client's classes from its uploads, as a server, another client, or all other clients
together see them. `models`: whether a row was trained on, from the shared model or a personal one.
Attackers know settings, labels and the server's state, and have rows that nobody trains on.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedpn.core import metrics
from fedpn.core.trees import Params, Slots, public, stack, zip_with
from fedpn.data.dataset import Array
from fedpn.data.federation import Federation
from fedpn.data.partition import classes as deal_classes
from fedpn.federated.aggregation import norms
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.gather import Gatherer, moves
from fedpn.federated.listener import Listener
from fedpn.federated.observer import Observer
from fedpn.federated.privacy import of_means
from fedpn.federated.site import Setup, Site
from fedpn.federated.training import Train
from fedpn.nn.posterior import call
from fedpn.runs.config import Config, resolve
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import headed, simulate
from fedpn.runs.prepare import assemble, deal_rows, read

DATASET, CLASSES, CLIENTS = "fashionmnist", 10, 20
FEW = 30  # training rows of client 0, where models are attacked
DECKS = 2  # of made-up clients, whom an attacker plays with rows of its own

Tree = dict[str, Any]


def settings(seed: int, noise: float = 0.0, **more: Any) -> Config:
    """The settings of `fedpn run`, or those with a private mean."""
    layers: list[Any] = [{"dataset": DATASET, "clients": CLIENTS, "seed": seed} | more]
    if noise:
        private = {"rule": "private", "noise": noise}
        layers.append({"aggregation": private, "method": {"optimizer_state": "reset"}})
    return resolve(layers)


def federation_of(config: Config, rows: int = 0, sizes: Mapping[int, int] | None = None) -> Setup:
    """The data, or so many rows of it, dealt to clients; some train on a few of theirs alone."""
    dataset = read(config, config.dataset)
    if rows:  # the same ones, whoever is dealt which
        kept = np.sort(np.random.default_rng(0).permutation(len(dataset))[:rows])
        dataset = replace(dataset, x=dataset.x[kept], y=dataset.y[kept])
    dataset, federation = deal_rows(config, dataset)
    rng = np.random.default_rng(config.seed)
    train = [
        np.sort(rng.permutation(mine)[: (sizes or {}).get(client)])
        for client, mine in enumerate(federation.train)
    ]
    return assemble(config, dataset, replace(federation, train=tuple(train)))


def separation(members: Tensor, others: Tensor) -> dict[str, float]:
    """How well scores tell members, who have higher ones: by chance 0.5, and 0.01 at 1 % FPR."""
    limit = others.double().sort().values[math.ceil(0.99 * len(others)) - 1]
    found = float((members.double() > limit).double().mean())
    return {"auroc": metrics.auroc(others, members), "tpr": found}


def of_classes(scores: Tensor, owned: Tensor) -> dict[str, float]:  # [C, K], [C, K]
    """AUROC over clients and classes; how often the best n classes are a client's n classes."""
    order = scores.argsort(dim=1, descending=True)
    hits = [bool(own[o[: int(own.sum())]].all()) for o, own in zip(order, owned, strict=True)]
    return {"auroc": metrics.auroc(scores[~owned], scores[owned]), "exact": sum(hits) / len(hits)}


def uploads(seed: int, noise: float, rounds: int) -> Tree:
    """Clients' classes from the first round, from the last, and from all rounds together."""
    config = settings(seed, noise)
    setup = federation_of(config)
    task, counts = setup.model.task, torch.from_numpy(setup.federation.counts)
    server = config.method.init(task, setup.fresh)
    rows = setup.federation.train
    memories = [config.method.enroll(task, setup.fresh, setup.labels(mine)) for mine in rows]
    phase = Train(config.method, config.train, seed, rounds)
    gatherer = Gatherer(seed, config.aggregation)
    sums: dict[str, dict[str, Tensor]] = {}
    found: Tree = {}
    for done in range(rounds):
        sent = public(server)
        sites = [Site(client, setup, done) for client in range(CLIENTS)]
        replies = phase.cohort(sites, sent, memories, lambda: None)
        part = gatherer.part(replies.statistics, replies.weights, True)
        total = gatherer.total(sent, [part], done, True, CLIENTS)
        moved = moves(sent, replies.statistics)["model"]
        mean = zip_with(torch.sub, total.mean["model"], sent["model"])
        weights = replies.weights / replies.weights.sum()
        if noise:
            clip = config.aggregation.clip
            weights = clip / norms({"model": moved}).clamp(min=clip) / CLIENTS
        drift, templates = idle(config, sent), shadows(config, setup, sent, phase, done)
        scores = {
            view: looks(seen, drift, templates)
            for view, seen in views(moved, mean, weights).items()
        }
        for view, by in scores.items():
            old = sums.get(view, {})
            sums[view] = {n: s + old.get(n, 0) for n, s in by.items()}
        for name, told in (("first", scores), ("last", scores), ("together", sums)):
            if name != "first" or not done:
                found[name] = {
                    view: {n: of_classes(s, counts > 0) for n, s in by.items()}
                    for view, by in told.items()
                }
        server, memories = phase.server(server, total), replies.memories
    moving = scores["single"]["flows"] > 1e-6 * scores["single"]["flows"].amax(1, keepdim=True)
    found["flows that move are the classes"] = float(
        (moving == (counts > 0)).all(1).double().mean()
    )
    cards = [1 / math.comb(CLASSES, int(own)) for own in (counts > 0).sum(1)]
    found["chance"] = sum(cards) / CLIENTS
    if noise:
        accounts = [of_means(config.aggregation, times, False) for times in (1, rounds)]
        found["epsilon"] = [account.epsilon for account in accounts]
    return found


def views(moved: Params, mean: Params, weights: Tensor) -> dict[str, Params]:
    """Moves as parties see them, [C, ...]: one upload; the mean; the mean without the others."""

    def left(m: Tensor, t: Tensor) -> Tensor:
        w = weights.to(t).reshape(-1, *[1] * (t.dim() - 1))
        return (m - ((w * t).sum(0) - w * t)) / w

    same = {name: t.expand(CLIENTS, *t.shape) for name, t in mean.items()}
    return {"single": moved, "mean": same, "all but one": zip_with(left, mean, moved)}


def looks(moved: Params, drift: Params, templates: Tensor) -> dict[str, Tensor]:  # each [C, K]
    """Three scores of each class for each client."""
    rest = zip_with(torch.sub, moved, drift)
    flows = [rest[f"density.{name}"].flatten(2) for name in ("x0", "a", "s")]
    return {
        "flows": torch.cat(flows, 2).norm(dim=2),
        "head bias": rest["head.2.bias"],
        "made-up clients": flat(moved) @ templates.T,
    }


def idle(config: Config, sent: Slots) -> Params:
    """How far momentum that the server has sent moves a model by itself."""
    optimizer, params = config.method.local_optimizer(), sent["model"]
    state = sent.get("optimizer") or optimizer.init(params)
    for _ in range(config.train.steps):
        params, state = optimizer.update(params, zip_with(torch.zeros_like, params), state)
    return zip_with(torch.sub, params, sent["model"])


def flat(moved: Params) -> Tensor:  # -> [C, P]
    return torch.cat([t.flatten(1) for t in moved.values()], 1)


def shadows(config: Config, setup: Setup, sent: Slots, phase: Train, done: int) -> Tensor:
    """For each class, how uploads of made-up clients with it differ from those without: [K, P]."""
    pool = np.sort(np.concatenate(setup.federation.test))
    labels = setup.federation.labels
    decks = [deal_classes(labels[pool], CLIENTS, config.seed + 1000 + d) for d in range(DECKS)]
    rows = tuple(pool[mine] for deck in decks for mine in deck)
    has = np.stack([np.bincount(labels[mine], minlength=CLASSES) > 0 for mine in rows])
    other = replace(setup, federation=Federation(labels, rows, rows, rows, config.seed))
    task, found = setup.model.task, []
    for client, mine in enumerate(rows):
        memory = config.method.enroll(task, setup.fresh, other.labels(mine))
        reply = phase.client(Site(client, other, done), sent, memory)
        found.append(flat(moves(sent, stack([reply.statistics]))["model"])[0])
    moved, held = torch.stack(found), torch.from_numpy(has).to(found[0])
    means = [(h.T @ moved) / h.sum(0)[:, None] for h in (held, 1 - held)]
    return normalize(means[0] - means[1])


def models(seeds: int, rows: int, noise: float, rounds: int) -> Tree:
    """Who was trained on, by scores of the shared model and of personal ones; client 0 has few."""
    runs = [_run(seed, rows, noise, rounds) for seed in range(seeds)]
    found: Tree = {"seeds": [_rows_told(runs, seed) for seed in range(seeds)]}
    found["accuracy"] = [run["accuracy"] for run in runs]
    return found | {"epsilon": runs[0]["epsilon"], "rows": runs[0]["rows"]}


def _run(seed: int, rows: int, noise: float, rounds: int) -> Tree:
    """Rounds and the personal stage, and what models then say of every row."""
    config = settings(seed, noise, rounds=rounds)
    setup = federation_of(config, rows, {0: FEW})
    simulator = simulate(config, setup)
    phases = [p for p in phases_of(config) if p.name in ("federate", "personalise")]
    first = config.method.init(setup.model.task, setup.fresh)
    server = conduct(phases, simulator, first, Journal(None), Listener()).server
    observe, test = setup.observer(config.method, server), np.concatenate(setup.federation.test)
    own = [simulator.members[client]["own"] for client in range(CLIENTS)]
    return {
        "federation": setup.federation,
        "shared": scores_of(setup, observe, {}),
        "own": [scores_of(setup, observe, mine) for mine in own],
        "accuracy": metrics.accuracy(observe.shared(test).label, setup.labels(test)),
        "epsilon": headed(config, DATASET, CLIENTS, {}).get("privacy", {}).get("epsilon"),
        "rows": float(np.mean([len(mine) for mine in setup.federation.train[1:]])),
    }


@torch.no_grad()
def scores_of(setup: Setup, observe: Observer, own: Params) -> dict[str, Tensor]:
    """What an attacker looks at, of every row; higher: more like a row that was trained on."""
    rows = np.arange(len(setup.dataset))
    opinion, labels = observe.local(own, rows), setup.labels(rows)
    params = (observe.common or {}) | own
    parts = zip(opinion.z.split(512), labels.split(512), strict=True)
    evidence = [call(setup.model.network, params, "evidence", *p, True, True) for p in parts]
    return {
        "density": torch.cat([e.log_likelihood for e in evidence]),
        "loss": opinion.probs.double().clamp(min=1e-30).log().gather(1, labels[:, None])[:, 0],
        "confidence": opinion.probs.amax(1),
    }


def _rows_told(runs: list[Tree], seed: int) -> Tree:
    """Training rows against test rows of the same classes."""
    federation: Federation = runs[seed]["federation"]
    test, labels = np.concatenate(federation.test), federation.labels
    shared = runs[seed]["shared"] | {"loss beside others'": _beside(runs, seed)}

    def told(scores: dict[str, Tensor], members: Array, others: Array) -> Tree:
        pairs = {name: (s[members], s[others]) for name, s in scores.items()}
        return {name: separation(*(t[t.isfinite()] for t in p)) for name, p in pairs.items()}

    alike = [test[np.isin(labels[test], np.unique(labels[m]))] for m in federation.train]
    few, *rest = [
        told(own, mine, like)
        for own, mine, like in zip(runs[seed]["own"], federation.train, alike, strict=True)
    ]
    return {
        "shared": told(shared, np.concatenate(federation.train[1:]), test),
        "shared, few": told(shared, federation.train[0], alike[0]),
        "personal": average(rest),
        "personal, few": few,
    }


def _beside(runs: list[Tree], seed: int) -> Tensor:
    """A row's loss beside that of models, of other dealings, that were not trained on it."""
    said, out = [], []
    for run in runs[:seed] + runs[seed + 1 :]:
        used = np.concatenate(run["federation"].train)
        out.append(torch.from_numpy(~np.isin(np.arange(len(run["shared"]["loss"])), used)))
        said.append(run["shared"]["loss"])
    there = torch.stack(out).double()
    return runs[seed]["shared"]["loss"] - (torch.stack(said) * there).sum(0) / there.sum(0)


def average(trees: list[Any]) -> Any:
    """The mean of trees of numbers, or of nothing."""
    if isinstance(trees[0], dict):
        return {name: average([tree[name] for tree in trees]) for name in trees[0]}
    if isinstance(trees[0], list):
        return [average(list(parts)) for parts in zip(*trees, strict=True)]
    return None if trees[0] is None else float(np.mean(trees))
