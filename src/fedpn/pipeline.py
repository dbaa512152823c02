"""Config -> finished run: the whole way of the data on one screen."""

import json
import time
from collections.abc import Iterator
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpn import metrics, report, simulate, store
from fedpn.algorithm import Data
from fedpn.bundle import write_models
from fedpn.config import Config, read_toml, to_tree
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation, federate
from fedpn.data.normalise import constants, moments
from fedpn.data.own import open_dataset
from fedpn.data.partition import partition
from fedpn.errors import UserError
from fedpn.evaluate import evaluate, look
from fedpn.figures import figures, gallery
from fedpn.nn.build import Blueprint, build_model, choose_encoder
from fedpn.nn.posterior import parameters
from fedpn.nn.task import Model
from fedpn.personalise import Embedder, Observer, adapt, calibrate_all, fit_routers, population
from fedpn.routing.calibrate import rows_needed
from fedpn.trees import Params, flatten, unflatten

PROBE = 1000  # calibration rows that follow the global model's accuracy through the rounds
CHECKPOINT = 30.0  # seconds between checkpoints


class Tell(Protocol):
    """Hears how far a run has come."""

    def __call__(self, stage: str, done: int, of: int, **facts: float | None) -> None: ...


def quiet(stage: str, done: int, of: int, **facts: float | None) -> None:
    """Hears nothing."""


class Prepared(NamedTuple):
    """Everything that is settled before the first step."""

    dataset: Dataset
    federation: Federation
    blueprint: Blueprint
    model: Model
    data: Data
    fresh: Params


def deal(config: Config) -> tuple[Dataset, Federation]:
    """Loads the data and deals them to clients."""
    d = config.data
    dataset = open_dataset(config.dataset, d.image_size or None, d.label or None, d.client or None)
    owned = partition(dataset, d.partition, config.clients, config.seed, d.cards, d.beta)
    return dataset, federate(dataset.y, owned, config.seed)


def prepare(config: Config) -> Prepared:
    """Deals the data and builds the model; finds mistakes before anything is written."""
    dataset, federation = deal(config)
    if is_routed(config):
        _check_calibration(federation, config)
    mean, std = constants(reduce(add, (moments(dataset.x[rows]) for rows in federation.train)))
    blueprint = Blueprint(
        config.method.network,
        dataset.shape,
        len(dataset.classes),
        choose_encoder(config.model.encoder, dataset.shape),
        config.model.dim,
        config.model.density,
        config.model.layers,
        mean,
        std,
        config.model.norm,
    )
    options = config.method.loss_options()
    model = build_model(blueprint, config.seed, options, config.model.pretrained)
    data = Data(torch.from_numpy(dataset.x), torch.from_numpy(dataset.y))
    fresh = parameters(model.network)
    shared = config.method.shared(config.method.init(model.task, fresh))
    if is_routed(config) and shared is None:
        raise UserError(f"{config.algorithm} has no global model that a router could delegate to")
    return Prepared(dataset, federation, blueprint, model, data, fresh)


def is_routed(config: Config) -> bool:
    """Tells whether clients have a switch: a posterior network's own, or a router's."""
    return config.method.network == "posterior" or bool(config.routing.router)


def _check_calibration(federation: Federation, config: Config) -> None:
    needed = rows_needed(min(config.routing.outliers, config.routing.abstain))
    for client, rows in enumerate(federation.calibration):
        if len(rows) < needed:
            share = 100 * min(config.routing.outliers, config.routing.abstain)
            raise UserError(
                f"client {client} has {len(rows)} calibration rows; a {share:g} % threshold needs "
                f"at least {needed} (use fewer --clients, or raise routing.abstain)"
            )


def stored(out: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    return read_toml(out / "config.toml")


def refuse_changes(config: Config, out: Path) -> None:
    """A run goes on as it began; only its rounds may be extended."""
    old, new = stored(out), to_tree(config)
    flat_old, flat_new = dict(_leaves(old)), dict(_leaves(new))
    for key in flat_old | flat_new:
        before, after = flat_old.get(key), flat_new.get(key)
        if before != after and not (key == "rounds" and config.rounds > old["rounds"]):
            raise UserError(
                f"--resume: {key} was {before!r} and is now {after!r}; only rounds may grow"
            )
    if new != old:
        store.write_toml(out / "config.toml", new)


def _leaves(tree: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{where}{key}.")
        else:
            yield f"{where}{key}", value


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    tell: Tell = quiet,
    checkpoint_every: int | None = None,
) -> dict[str, Any]:
    """Trains, personalises, calibrates, evaluates and reports; returns the metrics.

    State is saved every so many rounds, or about twice a minute.
    """
    began = time.perf_counter()
    ready = prepare(config)
    store.claim(out, resume)
    if not resume:
        store.write_toml(out / "config.toml", to_tree(config))
    timings = {}
    state = federate_rounds(config, ready, out, tell, checkpoint_every)
    timings["federate"] = time.perf_counter() - began

    algorithm, model, data, rows = config.method, ready.model, ready.data, ready.federation
    embed = Embedder(model, data.x, state.server["model"])
    cohort = config.train.cohort or simulate.cohort_size(state.server, state.memories[0])
    memories = adapt(
        algorithm,
        model,
        data,
        rows.train,
        state.server,
        state.memories,
        ready.fresh,
        embed,
        config.train.batch,
        config.seed,
        cohort,
        lambda done, of: tell("personalise", done, of),
    )
    people = population(algorithm, state.server, memories)
    if config.routing.router == "gaussian":
        people = fit_routers(people, embed, data.y, rows.train, len(ready.dataset.classes))
    observe = Observer(model, embed, config.routing.score, config.routing.router)
    thresholds = None
    if is_routed(config):
        shares = config.routing.outliers, config.routing.abstain
        thresholds = calibrate_all(people, observe, rows.calibration, *shares)
    timings["personalise"] = time.perf_counter() - began - sum(timings.values())

    tell("evaluate", 0, 1)
    headline = "switch" if is_routed(config) else algorithm.headline
    views = look(rows, people, observe, thresholds)
    results = {
        "format": 1,
        "dataset": ready.dataset.name,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "clients": rows.clients,
        "rounds": config.rounds,
        "headline": headline,
    } | evaluate(rows, views, headline, config.routing.router or config.routing.score)
    classes = ready.dataset.classes
    drawn = figures(rows, views, headline, len(classes))
    cards = gallery(views, config.seed)
    timings["evaluate"] = time.perf_counter() - began - sum(timings.values())

    write_models(out, ready.blueprint, ready.dataset, config, people, thresholds)
    pictures = {"images": data.x[[card["row"] for card in cards]]} if cards else {}
    store.write_tensors(out / "gallery.safetensors", pictures)
    store.write_json(out / "figures.json", drawn | {"gallery": cards})
    store.write_json(out / "metrics.json", results)
    tell("report", 0, 1)
    report.write_page([out], out / "report.html")
    timings["report"] = time.perf_counter() - began - sum(timings.values())
    timings["total"] = time.perf_counter() - began
    store.write_json(out / "timings.json", timings)
    store.seal(out)
    return results


def federate_rounds(
    config: Config, ready: Prepared, out: Path, tell: Tell, checkpoint_every: int | None
) -> simulate.State:
    """Plays the rounds, from the last checkpoint where there is one."""
    algorithm, task, rows = config.method, ready.model.task, ready.federation.train
    labels = [ready.data.y[torch.from_numpy(mine)] for mine in rows]
    state = simulate.begin(algorithm, task, ready.fresh, labels, out / "memories.bin")
    state = load_state(out, state)
    engine = simulate.Engine(
        algorithm,
        task,
        ready.data,
        rows,
        config.seed,
        config.train,
        config.faults,
        config.aggregation,
    )
    history = _history(out, state.round)
    saved = time.perf_counter()
    probe = _probe(ready)
    with (out / "history.jsonl").open("a", encoding="utf-8") as file:
        begun = state
        for state, record in engine.rounds(begun, config.rounds):
            shared = algorithm.shared(state.server)
            accuracy = None if shared is None else _accuracy(ready, shared, probe)
            file.write(json.dumps(record._asdict() | {"accuracy": accuracy}) + "\n")
            file.flush()
            tell("federate", state.round, config.rounds, loss=record.loss, accuracy=accuracy)
            late = time.perf_counter() - saved > CHECKPOINT
            if state.round % checkpoint_every == 0 if checkpoint_every else late:
                save_state(out, state)
                saved = time.perf_counter()
    if state.round != len(history) or not (out / "state.safetensors").exists():
        save_state(out, state)
    return state


def save_state(out: Path, state: simulate.State) -> None:
    """Writes a federation between two rounds."""
    tensors = flatten(state.server) | {"memories": state.memories.save()}
    store.write_tensors(out / "state.safetensors", tensors, round=str(state.round))


def load_state(out: Path, first: simulate.State) -> simulate.State:
    """Reads the last checkpoint, or begins."""
    path = out / "state.safetensors"
    if not path.exists():
        return first
    tensors, about = store.read_tensors(path)
    first.memories.restore(tensors.pop("memories"))
    server = unflatten(tensors, tuple(first.server))
    return simulate.State(int(about["round"]), server, first.memories)


def _history(out: Path, rounds: int) -> list[str]:
    """Cuts the history to the rounds of the checkpoint."""
    path = out / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True)[:rounds] if path.exists() else []
    store.write_text(path, "".join(lines))
    return lines


def _probe(ready: Prepared) -> Tensor:
    pooled = np.concatenate(ready.federation.calibration)
    rng = np.random.default_rng([ready.federation.seed, 8])
    return torch.from_numpy(np.sort(rng.permutation(pooled)[:PROBE]))


@torch.no_grad()
def _accuracy(ready: Prepared, shared: Params, probe: Tensor) -> float:
    logits = ready.model.task.logits(shared, ready.data.x[probe])
    return metrics.accuracy(logits.argmax(-1), ready.data.y[probe])
