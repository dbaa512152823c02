"""Config -> finished run: the whole way of the data on one screen."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedpn.federated import privacy
from fedpn.reporting import report
from fedpn.federated import simulator as simulate
from fedpn.core import store
from fedpn.serving.bundle import write_models
from fedpn.runs.config import Config, leaves, read_toml, resolve, to_tree
from fedpn.core.errors import UserError
from fedpn.runs.evaluate import View, evaluate, look
from fedpn.runs.figures import figures, gallery
from fedpn.federated.memories import Memories
from fedpn.federated.personalise import (
    Embedder,
    Observer,
    Population,
    adapt,
    calibrate_all,
    fit_routers,
    know_classes,
    population,
)
from fedpn.runs.prepare import Prepared, is_routed, prepare
from fedpn.federated.rounds import Company, Stopped, play_rounds
from fedpn.routing.thresholds import Thresholds
from fedpn.core.trees import Slots


def run(
    config: Config, out: Path, resume: bool = False, company: Company | None = None
) -> dict[str, Any]:
    """Trains, personalises, calibrates, evaluates and reports; returns the metrics."""
    company = company or Company()
    clock = Clock()
    ready = prepare(config)
    store.claim(out, resume)
    if not resume:
        store.write_toml(out / "config.toml", to_tree(config))
    for line in (ready.dataset.note, *ready.dataset.remarks):
        if line:
            company.say(f"{ready.dataset.name}: {line}")
    state = play_rounds(config, ready, out, company)
    clock.lap("federate")
    people, observe, thresholds = personal_stage(
        config, ready, state.server, state.memories, company
    )
    clock.lap("personalise")
    company.tell("evaluate", 0, 1)
    views = look(ready.federation, people, observe, thresholds)
    results = judge(config, ready, views)
    clock.lap("evaluate")
    company.tell("report", 0, 1)
    write_models(out, ready.blueprint, ready.dataset, config, people, thresholds)
    store.write_json(out / "metrics.json", results)
    write_figures(ready, views, results["headline"], out)
    report.write_page([out], out / "report.html")
    clock.lap("report")
    store.write_json(out / "timings.json", clock.laps | {"total": clock.total})
    engine = {
        "cohort": cohort_of(config, state.server, state.memories),
        "threads": torch.get_num_threads(),
    }
    store.write_json(out / "engine.json", engine | {"device": str(ready.data.x.device)})
    store.seal(out)
    return results


class Clock:
    """Measures one stage after the other."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.laps: dict[str, float] = {}

    @property
    def total(self) -> float:
        return time.perf_counter() - self.began

    def lap(self, stage: str) -> None:
        self.laps[stage] = self.total - sum(self.laps.values())


def personal_stage(
    config: Config,
    ready: Prepared,
    server: Slots,
    memories: Sequence[Slots] | Memories,
    company: Company,
    clients: Sequence[int] | None = None,
) -> tuple[Population, Observer, list[Thresholds] | None]:
    """Lets clients (all, or the given) adapt their models and, for a switch, calibrate them."""
    routing, clients = config.routing, clients or range(ready.federation.clients)
    train = tuple(ready.federation.train[client] for client in clients)

    def tick(done: int, of: int) -> None:
        company.tell("personalise", done, of)
        if company.stop() and done < of:
            raise Stopped("in the personal stage")

    embed = Embedder(ready.model, ready.data.x, server["model"])
    adapted = adapt(
        config.method,
        ready.model,
        ready.data,
        train,
        server,
        memories,
        ready.fresh,
        embed,
        config.train.batch,
        config.seed,
        cohort_of(config, server, memories),
        tick,
        clients,
    )
    people = population(config.method, server, adapted)
    classes = len(ready.dataset.classes)
    if routing.router == "gaussian":
        form = routing.covariance, routing.shrinkage
        people = fit_routers(people, embed, ready.data.y, train, classes, *form)
    if routing.router == "foreign":
        people = know_classes(people, ready.data.y, train, classes)
    observe = Observer(ready.model, embed, routing.score, routing.router)
    if not is_routed(config):
        return people, observe, None
    shares = routing.outliers, routing.abstain
    held_out = tuple(ready.federation.calibration[client] for client in clients)
    return people, observe, calibrate_all(people, observe, held_out, *shares)


def cohort_of(config: Config, server: Slots, memories: Sequence[Slots] | Memories) -> int:
    """How many clients are stacked at once."""
    return config.train.cohort or simulate.cohort_size(server, memories[0])


def judge(config: Config, ready: Prepared, views: list[View]) -> dict[str, Any]:
    """The contents of `metrics.json`."""
    rows, score = ready.federation, score_of(config)
    figures = evaluate(rows, views, headline_of(config), score)
    return headed(config, ready.dataset.name, rows.clients, figures)


def headline_of(config: Config) -> str:
    """Whose figures stand for the run."""
    return "switch" if is_routed(config) else config.method.headline


def score_of(config: Config) -> str:
    """What a switch goes by."""
    return config.routing.router or config.routing.score


def headed(config: Config, dataset: str, clients: int, figures: dict[str, Any]) -> dict[str, Any]:
    """Figures under the facts of their run."""
    results = {
        "format": 1,
        "dataset": dataset,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "clients": clients,
        "rounds": config.rounds,
        "headline": headline_of(config),
    } | figures
    if config.aggregation.rule == "private":
        joined = simulate.joining(clients, config.train.join)
        spent = privacy.spent(config.aggregation, joined, clients, config.rounds)
        results["privacy"] = {"epsilon": spent, "delta": config.aggregation.delta}
    return results


def write_figures(ready: Prepared, views: list[View], headline: str, out: Path) -> None:
    """Keeps what the report's figures and gallery are drawn from."""
    cards = gallery(views, ready.federation.seed)
    rows = [card["row"] for card in cards]
    pictures = {"images": ready.data.x[rows].cpu()} if rows else {}
    drawn = figures(ready.federation, views, headline, len(ready.dataset.classes))
    store.write_tensors(out / "gallery.safetensors", pictures)
    store.write_json(out / "figures.json", drawn | {"gallery": cards})


def stored(out: Path) -> dict[str, Any]:
    """The settings of the run in a directory."""
    return read_toml(out / "config.toml")


def refuse_changes(config: Config, out: Path) -> None:
    """A run goes on as it began; only its rounds may be extended."""
    old, new = to_tree(resolve([stored(out)])), to_tree(config)
    flat_old, flat_new = dict(leaves(old)), dict(leaves(new))
    for key in flat_old | flat_new:
        before, after = flat_old.get(key), flat_new.get(key)
        if before != after and not (key == "rounds" and config.rounds > old["rounds"]):
            raise UserError(
                f"--resume: {key} was {before!r} and is now {after!r}; only rounds may grow"
            )
    if new != old:
        store.write_toml(out / "config.toml", new)
