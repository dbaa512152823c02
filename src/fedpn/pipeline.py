"""Config -> finished run: the whole way of the data on one screen."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fedpn import privacy, report, simulate, store
from fedpn.bundle import write_models
from fedpn.config import Config, read_toml, to_tree
from fedpn.errors import UserError
from fedpn.evaluate import evaluate, look
from fedpn.figures import figures, gallery
from fedpn.personalise import Embedder, Observer, adapt, calibrate_all, fit_routers, population
from fedpn.prepare import is_routed, prepare
from fedpn.rounds import Company, play_rounds


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    company: Company | None = None,
) -> dict[str, Any]:
    """Trains, personalises, calibrates, evaluates and reports; returns the metrics."""
    company = company or Company()
    tell = company.tell
    began = time.perf_counter()
    ready = prepare(config)
    store.claim(out, resume)
    if not resume:
        store.write_toml(out / "config.toml", to_tree(config))
    timings = {}
    state = play_rounds(config, ready, out, company)
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
    if config.aggregation.rule == "private":
        joined = simulate.joining(rows.clients, config.train.join)
        spent = privacy.spent(config.aggregation, joined, rows.clients, config.rounds)
        results["privacy"] = {"epsilon": spent, "delta": config.aggregation.delta}
    classes = ready.dataset.classes
    drawn = figures(rows, views, headline, len(classes))
    cards = gallery(views, config.seed)
    timings["evaluate"] = time.perf_counter() - began - sum(timings.values())

    write_models(out, ready.blueprint, ready.dataset, config, people, thresholds)
    pictures = {"images": data.x[[card["row"] for card in cards]].cpu()} if cards else {}
    store.write_tensors(out / "gallery.safetensors", pictures)
    store.write_json(out / "figures.json", drawn | {"gallery": cards})
    store.write_json(out / "metrics.json", results)
    tell("report", 0, 1)
    report.write_page([out], out / "report.html")
    timings["report"] = time.perf_counter() - began - sum(timings.values())
    timings["total"] = time.perf_counter() - began
    store.write_json(out / "timings.json", timings)
    threads = torch.get_num_threads()
    store.write_json(out / "engine.json", {"cohort": cohort, "threads": threads})
    store.seal(out)
    return results


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
