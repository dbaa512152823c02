"""Config -> finished run: the whole way of the data on one screen."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedpn.core import store
from fedpn.core.trees import Slots, flatten
from fedpn.data.dataset import Dataset
from fedpn.data.describe import client_name
from fedpn.federated import privacy
from fedpn.federated.attack import taken_in
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import Conducted, conduct
from fedpn.federated.heads.noise import RELEASES
from fedpn.federated.listener import Listener
from fedpn.federated.privacy import Account
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Setup, Unseen
from fedpn.federated.training import Train
from fedpn.reporting import report
from fedpn.routing.settings import RoutingSettings
from fedpn.runs.config import Config, to_tree
from fedpn.runs.directory import SERVER, clear, refuse_changes
from fedpn.runs.evaluate import View
from fedpn.runs.figures import figures, gallery
from fedpn.runs.identity import identity_of
from fedpn.runs.measure import Names, evaluate
from fedpn.runs.phases import joining_phases, phases_of
from fedpn.runs.prepare import fingerprint, prepare
from fedpn.serving.bundle import About, provenance, write_models


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    listener: Listener | None = None,
    checkpoint_every: int | None = None,
    given: Dataset | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Trains, personalises, calibrates, evaluates and reports; returns the metrics.

    Data that are `given` are taken instead of those that the config names. A run that is in the
    directory is gone on with, or replaced once it is clear that there is nothing to object to.
    """
    listener = listener or Listener()
    clock = Clock(listener)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    setup = prepare(config, given)
    if overwrite:
        clear(out)
    with store.claimed(out, resume):
        identity = identity_of(config, fingerprint(setup.dataset))
        journal = Journal(out, identity.facts, checkpoint_every, listener.say)
        if resume:
            refuse_changes(config, out)
            identity.check(out)
            journal.check()
        else:
            identity.keep(out)
        store.write_toml(out / "config.toml", to_tree(config))
        for line in (setup.dataset.note, *setup.dataset.remarks):
            if line:
                listener.say(f"{setup.dataset.name}: {line}")
        for remark in config.remarks(setup.federation.clients):
            listener.say(remark)
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
    results = judge(config, setup, views) | attacked(config, simulator, server)
    if setup.unseen is not None:
        results["unseen"] = judge_unseen(config, setup, setup.unseen, server, clock)
    results["warnings"] += results.get("attack", {}).get("words", [])
    for warning in results["warnings"]:
        clock.say(warning)
    clock.progress("report", 0, 1)
    members = [simulator.members[client] for client in range(simulator.clients)]
    about = about_models(config, setup, account_of(config, setup.dataset.shape, simulator.clients))
    write_models(out, about, shared_part(config, server), members)
    store.write_tensors(out / SERVER, flatten(server), data=fingerprint(setup.dataset))
    store.write_json(out / "metrics.json", results)
    write_figures(setup, views, config, out)
    report.write_page([out], out / "report.html")
    clock.stop()
    store.write_json(out / "timings.json", clock.laps)
    engine = {
        "cohort": simulator.cohort(server, config.train.batch),
        "threads": torch.get_num_threads(),
    }
    store.write_json(out / "engine.json", engine | {"device": str(setup.device)})
    store.seal(out)
    return results


def judge_unseen(
    config: Config, setup: Setup, unseen: Unseen, server: Slots, listener: Listener
) -> dict[str, Any]:
    """How well clients are served that never trained: each comes alone, as late-comers do."""
    dataset = replace(setup.dataset, clients=unseen.names)
    others = replace(setup, dataset=dataset, federation=unseen.federation, unseen=None)
    phases = joining_phases(config)
    views = []
    for client in range(unseen.federation.clients):
        alone = replace(others, federation=unseen.federation.beside([client]))
        found = conduct(phases, simulate(config, alone), server, Journal(None), Listener())
        views.append(found.records[0]["evaluate"])
        listener.progress("unseen", client + 1, unseen.federation.clients)
    return judge(config, others, views) | {"names": list(unseen.names)}


def attacked(config: Config, simulator: Simulator, server: Slots) -> dict[str, Any]:
    """What simulated attackers did, and what came of it; nothing where there are none."""
    bad, setup = simulator.attackers, simulator.setup
    if not len(bad):
        return {}
    names = [client_names(setup)[client] for client in bad]
    words = [f"attacked on purpose: {config.faults.attack} by the clients {', '.join(names)}"]
    shared, share = config.method.shared(server), None
    if shared is not None and config.faults.attack == "backdoor":
        logits = partial(setup.model.task.logits, shared)
        share = taken_in(logits, setup.data, setup.federation, bad)
        words.append(f"marked pictures are taken for {setup.dataset.classes[0]} in {share:.1%}")
    return {"attack": {"clients": names, "taken_in": share, "words": words}}


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

    def phase(self, name: str) -> None:
        self.listener.phase(name)

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
    account = account_of(config, setup.dataset.shape, rows.clients)
    found = evaluate(rows, views, config.headline, score_of(config), names)
    return headed(config, setup.dataset.name, rows.clients, account, found)


def score_of(config: Config) -> str:
    """By what the rule that counts tells own inputs from foreign ones."""
    return config.router if config.rule == "quantiles" else config.rule


def headed(
    config: Config, dataset: str, clients: int, account: Account | None, found: dict[str, Any]
) -> dict[str, Any]:
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
    if account is not None:
        results["privacy"] = account.tree()
    return results


def account_of(config: Config, shape: Sequence[int], clients: int | None = None) -> Account | None:
    """What noise promises of a run, where it has any.

    Where clients come and go, each may have been in every round.
    """
    if config.head.noise:
        return privacy.of_sums(config.head.noise, config.aggregation.delta, RELEASES)
    if config.aggregation.rule != "private":
        return None
    times = config.rounds
    if clients is not None:
        rounds = Train(config.method, config.train, config.seed, config.rounds)
        times = privacy.most_rounds(rounds, clients)
    return privacy.of_means(config.aggregation, times, is_table=len(shape) == 1)


def client_names(setup: Setup) -> tuple[str, ...]:
    """What the clients of a run are called."""
    return tuple(client_name(setup.dataset, c) for c in range(setup.federation.clients))


def about_models(config: Config, setup: Setup, account: Account | None) -> About:
    """What a bundle says of its models."""
    dataset = setup.dataset
    note = " ".join(filter(None, (dataset.note, *dataset.remarks)))
    origin = provenance(dataset.name, note, config.algorithm, config.rounds, config.seed, account)
    return About(
        setup.blueprint,
        dataset.classes,
        client_names(setup),
        dataset.features,
        config.head,
        routing_of(config),
        origin,
        dataset.recipe,
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


def write_figures(setup: Setup, views: list[View], config: Config, out: Path) -> None:
    """Keeps what the report's figures and gallery are drawn from; of pictures only if they may."""
    cards = gallery(views, setup.federation.seed)
    rows = [card["row"] for card in cards]
    pictures = {"images": setup.data.x[rows].cpu()} if rows and config.shows_inputs else {}
    drawn = figures(setup.federation, views, config.headline, len(setup.dataset.classes))
    store.write_tensors(out / "gallery.safetensors", pictures)
    store.write_json(out / "figures.json", drawn | {"gallery": cards})
