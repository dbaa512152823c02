"""A finished run takes a client in, its new rows, or lets one go, without training anew."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core import store
from fedpn.core.code import code_from
from fedpn.core.errors import UserError
from fedpn.core.settings import need_trust
from fedpn.core.trees import Slots, unflatten
from fedpn.data.dataset import Dataset
from fedpn.data.describe import client_name
from fedpn.data.federation import Federation, federate, together
from fedpn.data.prepared import prepared
from fedpn.data.sources.own import read_dataset
from fedpn.data.sources.table import ways_of
from fedpn.data.units import of_rows
from fedpn.federated.checkpoint import HISTORY, Journal
from fedpn.federated.conductor import Conducted, conduct
from fedpn.federated.copies import without
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt
from fedpn.federated.site import Network, Setup, Site
from fedpn.nn.blueprint import build_model
from fedpn.nn.posterior import parameters
from fedpn.runs import pipeline
from fedpn.runs.config import Config, resolve, to_tree
from fedpn.runs.directory import SERVER, stored
from fedpn.runs.identity import identity_of
from fedpn.runs.phases import change_phases, joining_phases, phases_of
from fedpn.runs.pipeline import Clock, finish, simulate
from fedpn.runs.prepare import (
    check_calibration,
    deal_rows,
    find_device,
    fingerprint,
    lay_out,
    read,
    settle,
)
from fedpn.runs.settings import DataSettings
from fedpn.serving.bundle import About, about_client, read_about, read_members


def join(
    run: Path,
    data: str,
    name: str,
    out: Path,
    listener: Listener | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """A client that comes later: it gets models, prior and thresholds; `out` is its run.

    Where the head is in closed form the client's sums are added to it; the others' rows are not
    looked at again, and theirs stays as it is in `run`.
    """
    with _open(run, trust) as (config, about, server):
        if name in about.clients:
            raise UserError(f"{run} has a client {name} already; choose another name")
        mine = replace(config, dataset=data, data=_reading(config, about))
        dataset = _read_new(mine, data, about, newcomer=True)
        dataset = replace(dataset, client=None, clients=(name,))
        federation = federate(dataset.y, [np.arange(len(dataset))], config.seed, dataset.group)
        check_calibration(mine, dataset, federation, [0])
        setup = lay_out(mine, dataset, federation).settle(_network(mine, about))
        clock = Clock(listener or Listener())
        with _begun("join", run, out, mine, setup) as draft:
            _tell(dataset, clock)
            simulator = simulate(mine, setup, draft)
            found = conduct(joining_phases(mine), simulator, server, Journal(None), clock)
            return finish(mine, simulator, found, draft, clock)


def update(
    run: Path,
    data: str,
    name: str,
    out: Path,
    listener: Listener | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """A client that has new rows: it learns from all of its rows; `out` is its run.

    The rows that it had stay what they were, to train, to calibrate or to test; new ones are split
    likewise. Where the head is in closed form the client's old sums make place for its new ones.
    """
    with _open(run, trust) as (config, about, server):
        before, old = _rows_of(run, config, about, name)
        mine = replace(config, dataset=data, data=_reading(config, about))
        new = _read_new(mine, data, about_client(about, name))
        network, clock = _network(mine, about), Clock(listener or Listener())
        leaving = simulate(config, lay_out(config, before, old).settle(network))
        server = without(Site(0, leaving.setup), server)
        for phase in change_phases(config, leaves=True):
            server = conduct([phase], leaving, server, Journal(None), Listener()).server
        x, first = np.concatenate([before.x, new.x]), len(before)
        group = None
        if before.group is not None and new.group is not None:  # copies are so once prepared
            group = np.concatenate([before.group, new.group]) if before.groups else of_rows(x)
            old = replace(old, units=group[:first])
            new = replace(new, group=group[first:])
        dataset = replace(
            before,
            x=x,
            group=group,
            y=np.concatenate([before.y, new.y]),
            client=None,
            clients=(name,),
            remarks=new.remarks,
            recipe=new.recipe,
        )
        added = federate(new.y, [np.arange(len(new))], config.seed, new.group)
        setup = lay_out(mine, dataset, together(dataset.y, old, added, first))
        setup = setup.settle(network)
        with _begun("update", run, out, mine, setup) as draft:
            _tell(new, clock)
            simulator = simulate(mine, setup, draft)
            found = conduct(joining_phases(mine), simulator, server, Journal(None), clock)
            return finish(mine, simulator, found, draft, clock)


def _rows_of(run: Path, config: Config, about: About, name: str) -> tuple[Dataset, Federation]:
    """The rows that a client of a run has, as they were dealt and split."""
    if name not in about.clients:
        raise UserError(f"{run} has no client {name}; it has {', '.join(about.clients)}")
    if config.data.unseen:
        raise UserError(f"{run} was made to judge clients that never train (data.unseen)")
    if about.clients == (name,):  # who has joined has all rows of its file
        alone = _read_new(config, config.dataset, about)
        if _is_of(run, alone):
            return alone, federate(alone.y, [np.arange(len(alone))], config.seed, alone.group)
    dealt, federation = deal_rows(config, _prepared(read(config, config.dataset), about))
    if not _is_of(run, dealt):
        raise UserError(
            f"{config.dataset} has other rows than {run} was trained on: what the client gave "
            "cannot be told from them (an updated run is not updated again: update the first, with "
            "all new rows in one file)"
        )
    names = [client_name(dealt, client) for client in range(federation.clients)]
    return replace(dealt, clients=(name,)), federation.only([names.index(name)])


def _is_of(run: Path, dataset: Dataset) -> bool:
    """Whether a run was trained on these rows."""
    return store.read_tensors(run / SERVER, "head/")[1].get("data") == fingerprint(dataset)


def forget(
    run: Path,
    name: str,
    out: Path,
    wholly: bool = False,
    listener: Listener | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """A client that leaves: its sums are taken away; `out` is the run of the others.

    Their own models stay as they are, and their thresholds are learned again under the new head.
    Of the client are left the filters and scales that its moments had a part in, the gate and the
    pooled counts; `wholly` asks the others for their sums again, so that nothing is, where no round
    has trained an encoder.
    """
    with _open(run, trust) as (config, about, server):
        phases = change_phases(config, leaves=True)
        if not phases:
            raise UserError(
                f"{run} has a head that was trained, which cannot forget: train anew without the "
                f"client, by --set data.without={name}"
            )
        if len(about.clients) < 2:
            raise UserError(f"{name} is the only client of {run}: nothing would be left")
        left = replace(config, data=replace(config.data, without=(*config.data.without, name)))
        if wholly and config.rounds:
            raise UserError(
                f"the {config.rounds} rounds of {run} had the client's rows: train anew without "
                f"it, by --set data.without={name}"
            )
        if wholly:
            with store.drafted(out) as draft:
                return pipeline.run(left, draft, listener=listener)
        before, alone = _rows_of(run, config, about, name)
        after = deal_rows(left, _prepared(read(config, config.dataset), about))
        network = _network(config, about)
        simulator = simulate(config, lay_out(config, before, alone).settle(network))
        server = conduct(phases, simulator, server, Journal(None), Listener()).server
        server = without(Site(0, simulator.setup), server)
        others: Setup = lay_out(left, *after).settle(network)
        with _begun("forget", run, out, left, others) as draft:
            clock = Clock(listener or Listener())
            simulator = simulate(left, others, draft)
            members = zip(about.clients, read_members(run), strict=True)
            stay = [member for client, member in members if client != name]
            simulator.members = {i: {"own": member["own"]} for i, member in enumerate(stay)}
            again = [p for p in phases_of(left) if not p.sums and not isinstance(p, Adapt)]
            records = simulator.visit(again, server, clock)
            return finish(left, simulator, Conducted(server, records), draft, clock)


@contextmanager
def _open(run: Path, trust: bool) -> Iterator[tuple[Config, About, Slots]]:
    """A finished run's settings, what its models are of, and what its server had in the end.

    Code that it names is that which was kept with it.
    """
    if not (run / "bundle.json").exists() or not (run / "config.toml").exists():
        raise UserError(f"{run} is no finished run (an exported folder cannot take clients in)")
    if not (run / SERVER).exists():
        raise UserError(f"{run} was made by an older fedpn, which kept too little of its server")
    kept = stored(run)
    need_trust(kept, run, trust)
    store.verify(run, ["bundle.json", "config.toml", SERVER, *store.code_of(run)])
    server = unflatten(store.read_tensors(run / SERVER)[0])
    with code_from(run / store.CODE):
        yield resolve([kept]), read_about(run), server


@contextmanager
def _begun(kind: str, run: Path, out: Path, config: Config, setup: Setup) -> Iterator[Path]:
    """The new run's folder, which becomes `out` once it is whole; its rounds are those of `run`."""
    with store.drafted(out) as draft, store.held(draft):
        identity_of(config, fingerprint(setup.dataset), f"fedpn {kind}").keep(draft)
        store.write_toml(draft / "config.toml", to_tree(config))
        if (run / HISTORY).exists():
            shutil.copyfile(run / HISTORY, draft / HISTORY)
        yield draft


def _tell(new: Dataset, clock: Clock) -> None:
    """Says what is odd about new rows."""
    for remark in new.remarks:
        clock.say(f"{new.name}: {remark}")


def _read_new(config: Config, data: str, about: About, newcomer: bool = False) -> Dataset:
    """Rows that come later, read and prepared as those of the run were."""
    wanted = config.data.wanted()._replace(least=1)
    if about.recipe is not None:
        wanted = wanted._replace(ways=ways_of(about.recipe, newcomer))
    size = config.data.image_size or None
    dataset = _prepared(settle(config, read_dataset(data, size, wanted)), about)
    if dataset.is_raw:
        raise UserError(
            f"{data} has cells that are no numbers, and the run was trained on numbers alone: fill "
            "them in (fedpn data check shows where)"
        )
    if dataset.shape != tuple(about.blueprint.shape):
        raise UserError(
            f"{data} has rows of the shape {dataset.shape}, and the run was trained on "
            f"{tuple(about.blueprint.shape)}"
        )
    return dataset


def _reading(config: Config, about: About) -> DataSettings:
    """How a newcomer's rows are read: as the run's were, with its classes, columns and size."""
    shape = about.blueprint.shape
    return replace(
        config.data,
        classes=about.classes,
        features=about.features,
        client="",
        ignore=(),
        categories=(),
        image_size=shape[-1] if len(shape) == 3 and shape[1] == shape[2] else 0,
        shift="none",
        without=(),
        unseen=0.0,
        limit=0,
    )


def _prepared(dataset: Dataset, about: About) -> Dataset:
    """A table's columns as the run prepared its own."""
    if about.recipe is None or not dataset.features:  # or rows that are prepared already
        return dataset
    return prepared(dataset, about.recipe)


def _network(config: Config, about: About) -> Network:
    """The network as it was settled."""
    model = build_model(about.blueprint, config.seed, config.method.loss_options())
    model = model.to(find_device(config.engine.device))
    return Network(about.blueprint, model, parameters(model.network))
