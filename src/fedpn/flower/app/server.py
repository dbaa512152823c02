"""The server's part on Flower: waits for nodes, settles the network, conducts, writes results."""

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedpn import __version__
from fedpn.core import store
from fedpn.core.trees import flatten
from fedpn.data.moments import any_image
from fedpn.federated.checkpoint import HISTORY, Journal
from fedpn.federated.columns import column_phases, read_columns
from fedpn.federated.conductor import Conducted, conduct
from fedpn.federated.gather import Gatherer
from fedpn.federated.listener import Listener
from fedpn.federated.moments import SumMoments, read_moments
from fedpn.federated.privacy import Account
from fedpn.federated.site import Network
from fedpn.flower.app.change import change
from fedpn.flower.app.messages import Messages
from fedpn.flower.app.post import Post
from fedpn.flower.app.records import Order, read_agreed
from fedpn.flower.app.roster import Roster
from fedpn.flower.app.standing import CHANGED, ENGINE, Standing, read_standing
from fedpn.flower.app.terms import Terms
from fedpn.flower.app.watching import Watching
from fedpn.reporting import report
from fedpn.runs.config import Config, to_tree
from fedpn.runs.directory import SERVER, refuse_changes, stored
from fedpn.runs.identity import Identity, identity_of
from fedpn.runs.measure import Names, bring_together
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import (
    Clock,
    account_of,
    headed,
    routing_of,
    score_of,
    shared_part,
)
from fedpn.runs.prepare import draw_network, plan_model
from fedpn.serving.bundle import About, provenance, write_models

Event = dict[str, Any]
Tell = Callable[[Event], None]


class Teller(Listener):
    """Tells of a run in events."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def phase(self, name: str) -> None:
        self.tell({"phase": name})

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        known = {name: value for name, value in facts.items() if name != "accuracy"}
        self.tell({"stage": stage, "done": done, "of": of, **known})

    def say(self, text: str) -> None:
        self.tell({"warning": text})


def serve(grid: Grid, terms: Terms, tell: Tell) -> dict[str, Any]:
    """Conducts a whole run; returns the metrics."""
    with _place(terms) as out:
        watching = Watching(Teller(tell), terms, out)
        with _told_how_it_ends(watching):
            results = _serve(grid, replace(terms, out=out), watching)
    tell({"done": str(terms.out)})
    return results


@contextmanager
def _place(terms: Terms) -> Iterator[Path]:
    """Where a run writes; what goes on from a finished run is there once it is whole."""
    if terms.base is None:
        with store.claimed(terms.out, terms.resume):
            yield terms.out
    else:
        with store.drafted(terms.out) as draft, store.held(draft):
            yield draft


def _serve(grid: Grid, terms: Terms, watching: Watching) -> dict[str, Any]:
    """Plays a run in its place, from the nodes that it waits for to the report."""
    config, out, clock = terms.config, terms.out, Clock(watching)
    kept = config
    if terms.resume:  # with fewer nodes than before, perhaps
        kept = replace(config, clients=stored(out)["clients"])
        refuse_changes(kept, out)
    identity = identity_of(kept, kind=ENGINE if terms.base is None else CHANGED)
    if terms.resume:
        identity.check(out)
        Journal(out, identity.facts).check()
    else:
        identity.keep(out)
    store.write_toml(out / "config.toml", to_tree(kept))
    standing = read_standing(out) if terms.resume else None
    messages = _gather_nodes(grid, terms, clock, standing)
    watching.messages = messages
    if terms.base is None:
        network, found = _conduct(messages, terms, standing, identity, clock)
    else:
        network, found = change(messages, terms, clock)
        shutil.copyfile(terms.base / HISTORY, out / HISTORY)
    trees = [
        record["evaluate"] | {"client": client} for client, record in sorted(found.records.items())
    ]
    first = next(iter(messages.roster.members.values()))
    names = Names(first.classes, messages.names)
    figures = bring_together(trees, score_of(config), config.headline, names)
    account = account_of(config, network.blueprint.shape)
    results = headed(config, _data_name(messages), len(messages.names), account, figures)
    for warning in results["warnings"]:
        clock.say(warning)
    clock.progress("report", 0, 1)
    _write(messages, network, found.server, results, account)
    clock.stop()
    store.write_json(out / "timings.json", clock.laps)
    store.seal(out)
    watching.over("finished", {"accuracy": results["accuracy"]})
    return results


@contextmanager
def _told_how_it_ends(watching: Watching) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        watching.over("stopped" if stopped else f"failed: {error}"[:500])
        raise


def _conduct(
    messages: Messages,
    terms: Terms,
    standing: Standing | None,
    identity: Identity,
    clock: Clock,
) -> tuple[Network, Conducted]:
    """All phases of a run, from the first or from where it stands."""
    config = terms.config
    network = _settle(messages, terms, standing)
    first = config.method.init(network.model.task, network.fresh)
    journal = Journal(terms.out, identity.facts, 1, clock.say)
    patience = config.faults.patience
    found = conduct(phases_of(config), messages, first, journal, clock, patience)
    return network, found


def _gather_nodes(
    grid: Grid, terms: Terms, listener: Listener, standing: Standing | None
) -> Messages:
    """Waits for the nodes that a run needs."""
    config = terms.config
    run = standing.run if standing else secrets.token_hex(8)
    order = Order(run, terms.text, version=__version__)
    roster = Roster(Post(grid), order, config, listener.say, terms.patience)
    gatherer = Gatherer(config.seed, config.aggregation, config.faults.max_norm)
    listener.progress("wait", 0, terms.nodes)
    known = standing.names if standing else []
    missing = roster.wait(terms.nodes, known, terms.timeout)
    there = roster.present
    if len(there) < terms.nodes:
        lost = f"; missing: {', '.join(missing)}" if missing else _lost_partitions(roster, terms)
        why = sorted(f"{name} cannot take part: {why}" for name, why in roster.strangers.values())
        refused = "".join(f"\n{line}" for line in why)
        raise RuntimeError(
            f"{len(there)} of {terms.nodes} nodes came within "
            f"{terms.timeout:g} s ({', '.join(there) or 'none'}){lost}{refused}"
        )
    if missing:
        listener.say(f"the run goes on without {', '.join(missing)}")
    if config.data.limit and any(m.partition is None for m in roster.members.values()):
        listener.say("data.limit is for named sets: nodes take part with all rows of their own")
    roster.put_in_order(known)
    roster.settle()
    return Messages(roster, terms, gatherer)


def _lost_partitions(roster: Roster, terms: Terms) -> str:
    partitions = [member.partition for member in roster.members.values()]
    if None in partitions or not partitions:
        return ""
    lost = [str(p) for p in range(terms.nodes) if p not in partitions]
    return f"; missing: partition {', '.join(lost)}"


def _settle(messages: Messages, terms: Terms, standing: Standing | None) -> Network:
    """Settles the network with the nodes, or finds it as it was settled."""
    # The server's own work is small: it needs no GPU.
    config = replace(terms.config, engine=replace(terms.config.engine, device="cpu"))
    if standing is not None:
        blueprint, messages.recipe = read_agreed(standing.model)
        assert blueprint is not None
    else:
        member = next(iter(messages.roster.members.values()))
        _learn_recipe(messages, config)
        shape = member.shape if messages.recipe is None else (messages.recipe.width,)
        if config.hides_columns(shape):
            total = any_image(shape)
        else:
            found = conduct([SumMoments()], messages, {}, Journal(None), Listener())
            total = read_moments(found.server)
        blueprint = plan_model(config, shape, len(member.classes), total)
    network = draw_network(config, blueprint)
    messages.settle(network)
    return network


def _learn_recipe(messages: Messages, config: Config) -> None:
    """What nodes do with their columns, where those of any are not all numbers."""
    members = messages.roster.members.values()
    if any(member.raw for member in members):
        names, categories = next(iter(members)).features, config.data.categories
        phases = column_phases(names, categories)
        found = conduct(phases, messages, {}, Journal(None), Listener())
        messages.agree(read_columns(found.server, names, categories))


def _data_name(messages: Messages) -> str:
    """What the data are called: files of the nodes' own have no name that a server may know."""
    config, members = messages.terms.config, messages.roster.members.values()
    own = any(member.partition is None for member in members)
    return "the nodes' own data" if own and config.dataset == Config.dataset else config.dataset


def _write(
    messages: Messages,
    network: Network,
    server: Any,
    results: dict[str, Any],
    account: Account | None,
) -> None:
    """Writes results in the form of any run; personal models stay with their nodes."""
    config, out, members = messages.terms.config, messages.terms.out, messages.roster.members
    first = next(iter(members.values()))
    notes = " ".join(sorted({member.note for member in members.values() if member.note}))
    origin = provenance(
        _data_name(messages), notes, config.algorithm, config.rounds, config.seed, account
    )
    about = About(
        network.blueprint,
        first.classes,
        tuple(messages.names),
        first.features if messages.recipe is None else messages.recipe.names,
        config.head,
        routing_of(config),
        origin,
        messages.recipe,
    )
    write_models(out, about, shared_part(config, server), None)
    store.write_tensors(out / SERVER, flatten(server))
    store.write_json(out / "metrics.json", results)
    unknown: dict[str, Any] = {
        "ownership": None,
        "reliability": None,
        "risk_coverage": None,
        "gallery": [],
    }
    store.write_json(out / "figures.json", unknown)
    store.write_tensors(out / "gallery.safetensors", {})
    report.write_page([out], out / "report.html")
