"""Config -> finished run: the whole way of the data on one screen."""

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import leaves, read_toml
from fedpn.core.trees import Slots, flatten
from fedpn.data.describe import client_name
from fedpn.federated import privacy
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import Conducted, conduct
from fedpn.federated.heads.noise import RELEASES
from fedpn.federated.listener import Listener
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Setup
from fedpn.federated.training import joining
from fedpn.reporting import report
from fedpn.routing.settings import RoutingSettings
from fedpn.runs.config import Config, resolve, to_tree
from fedpn.runs.evaluate import View
from fedpn.runs.figures import figures, gallery
from fedpn.runs.measure import Names, evaluate
from fedpn.runs.phases import phases_of
from fedpn.runs.prepare import fingerprint, prepare
from fedpn.serving.bundle import About, provenance, write_models

SERVER = "server.safetensors"  # what the server had in the end: clients may join by it, or leave


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    listener: Listener | None = None,
    checkpoint_every: int | None = None,
) -> dict[str, Any]:
    """Trains, personalises, calibrates, evaluates and reports; returns the metrics."""
    listener = listener or Listener()
    clock = Clock(listener)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    setup = prepare(config)
    with store.claimed(out, resume):
        journal = Journal(out, about_run(setup), checkpoint_every, listener.say)
        if resume:
            journal.check()
            refuse_changes(config, out)
        store.write_toml(out / "config.toml", to_tree(config))
        for line in (setup.dataset.note, *setup.dataset.remarks):
            if line:
                listener.say(f"{setup.dataset.name}: {line}")
        listener.begin(out)
        try:
            simulator = simulate(config, setup, out)
            found = play(config, simulator, journal, clock)
            return finish(config, simulator, found, out, clock)
        finally:
            listener.end()


def simulate(config: Config, setup: Setup, out: Path | None = None) -> Simulator:
    """All clients of a run in this process."""
    return Simulator(
        setup,
        config.method,
        config.seed,
        config.faults,
        config.aggregation,
        config.engine.cohort,
        None if out is None else out / "memories.bin",
    )


def about_run(setup: Setup) -> dict[str, str]:
    """What a run must agree with to go on."""
    return {"engine": "the simulator", "data": fingerprint(setup.dataset)}


def play(config: Config, simulator: Simulator, journal: Journal, listener: Listener) -> Conducted:
    """Plays all phases of a run."""
    setup = simulator.setup
    first = config.method.init(setup.model.task, setup.fresh)
    phases = phases_of(config)
    return conduct(phases, simulator, first, journal, listener, config.faults.patience)


def finish(
    config: Config, simulator: Simulator, found: Conducted, out: Path, clock: "Clock"
) -> dict[str, Any]:
    """Writes what a run came to."""
    setup, server = simulator.setup, found.server
    views = [found.records[client]["evaluate"] for client in range(simulator.clients)]
    results = judge(config, setup, views)
    for warning in results["warnings"]:
        clock.say(warning)
    clock.progress("report", 0, 1)
    members = [simulator.members[client] for client in range(simulator.clients)]
    write_models(out, about_models(config, setup), shared_part(config, server), members)
    store.write_tensors(out / SERVER, flatten(server), data=fingerprint(setup.dataset))
    store.write_json(out / "metrics.json", results)
    write_figures(setup, views, config.headline, out)
    report.write_page([out], out / "report.html")
    clock.stop()
    store.write_json(out / "timings.json", clock.laps)
    engine = {"cohort": simulator.cohort(server), "threads": torch.get_num_threads()}
    store.write_json(out / "engine.json", engine | {"device": str(setup.device)})
    store.seal(out)
    return results


class Clock(Listener):
    """Passes on what it hears, and measures one stage after the other."""

    STAGES = ("federate", "personalise", "evaluate", "report")

    def __init__(self, listener: Listener) -> None:
        self.listener, self.began = listener, time.perf_counter()
        self.laps: dict[str, float] = dict.fromkeys(self.STAGES, 0.0)
        self.stage, self.since = self.STAGES[0], self.began

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        if stage in self.STAGES and stage != self.stage:
            self._lap(stage)
        self.listener.progress(stage, done, of, **facts)

    def _lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[self.stage] += now - self.since
        self.stage, self.since = stage, now

    def stop(self) -> None:
        self._lap("report")
        self.laps["total"] = time.perf_counter() - self.began

    def round(self, number: int, numbers: dict[str, float]) -> None:
        self.listener.round(number, numbers)

    def say(self, text: str) -> None:
        self.listener.say(text)

    def stopping(self) -> bool:
        return self.listener.stopping()


def judge(config: Config, setup: Setup, views: list[View]) -> dict[str, Any]:
    """The contents of `metrics.json`."""
    rows = setup.federation
    names = Names(setup.dataset.classes, client_names(setup))
    found = evaluate(rows, views, config.headline, score_of(config), names)
    return headed(config, setup.dataset.name, rows.clients, found)


def score_of(config: Config) -> str:
    """By what the rule that counts tells own inputs from foreign ones."""
    return config.router if config.rule == "quantiles" else config.rule


def headed(config: Config, dataset: str, clients: int, found: dict[str, Any]) -> dict[str, Any]:
    """Figures under the facts of their run."""
    results = {
        "format": 1,
        "dataset": dataset,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "clients": clients,
        "rounds": config.rounds,
        "headline": config.headline,
    } | found
    if config.aggregation.rule == "private":
        joined = joining(clients, config.train.join)
        spent = privacy.spent(config.aggregation, joined, clients, config.rounds)
        delta = config.aggregation.delta
        results["privacy"] = {"epsilon": spent, "delta": delta, "unit": "client"}
    if config.head.noise:
        delta = config.aggregation.delta
        spent = privacy.spent_on_sums(config.head.noise, delta, RELEASES)
        results["privacy"] = {"epsilon": spent, "delta": delta, "unit": "row"}
    return results


def client_names(setup: Setup) -> tuple[str, ...]:
    """What the clients of a run are called."""
    return tuple(client_name(setup.dataset, c) for c in range(setup.federation.clients))


def about_models(config: Config, setup: Setup) -> About:
    """What a bundle says of its models."""
    dataset = setup.dataset
    note = " ".join(filter(None, (dataset.note, *dataset.remarks)))
    return About(
        setup.blueprint,
        dataset.classes,
        client_names(setup),
        dataset.features,
        config.head,
        routing_of(config),
        provenance(dataset.name, note, config.algorithm, config.rounds, config.seed),
    )


def routing_of(config: Config) -> RoutingSettings | None:
    """The settings by which a bundle decides; None where a single model always answers."""
    if not config.rule:
        return None
    return replace(config.routing, router=config.router or "none", rule=config.rule)


def shared_part(config: Config, server: Slots) -> Slots:
    """What all clients answer with: the global model, and its head in closed form."""
    parts = {"model": config.method.shared(server), "head": server.get("head")}
    parts |= {name: server.get(name) for name in ("gate", "pool")}
    return {name: part for name, part in parts.items() if part}


def write_figures(setup: Setup, views: list[View], headline: str, out: Path) -> None:
    """Keeps what the report's figures and gallery are drawn from."""
    cards = gallery(views, setup.federation.seed)
    rows = [card["row"] for card in cards]
    pictures = {"images": setup.data.x[rows].cpu()} if rows else {}
    drawn = figures(setup.federation, views, headline, len(setup.dataset.classes))
    store.write_tensors(out / "gallery.safetensors", pictures)
    store.write_json(out / "figures.json", drawn | {"gallery": cards})


def stored(out: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    return read_toml(out / "config.toml")


def refuse_changes(config: Config, out: Path, but: Collection[str] = ()) -> None:
    """A run goes on as it began; only its rounds may be extended, and the engine may be another.

    Settings in `but` may be others as well.
    """
    old, new = to_tree(resolve([stored(out)])), to_tree(config)
    flat_old, flat_new = dict(leaves(old)), dict(leaves(new))
    for key in flat_old | flat_new:
        before, after = flat_old.get(key), flat_new.get(key)
        grows = key == "rounds" and config.rounds > old["rounds"]
        if before != after and not grows and key not in but and not key.startswith("engine."):
            raise UserError(
                f"--resume: {key} was {before!r} and is now {after!r}; only rounds may grow"
            )
