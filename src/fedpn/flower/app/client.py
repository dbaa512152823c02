"""What a node does: introduces itself, plays its part of a round, makes its own model."""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import RecordDict

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, map_slots, zip_with
from fedpn.federated.columns import column_phases
from fedpn.federated.moments import SumMoments
from fedpn.federated.phase import Phase, on_device
from fedpn.federated.settings import FaultSettings
from fedpn.federated.site import Setup, Site
from fedpn.flower.app.client_app import MASKS
from fedpn.flower.app.records import Order, Report, pack_report, read_config, read_order, unpack
from fedpn.flower.app.share import Share, open_share
from fedpn.flower.app.state import NodeState
from fedpn.runs.config import Config
from fedpn.runs.measure import about_client, client_metrics
from fedpn.runs.phases import change_phases, late_phases, phases_of
from fedpn.runs.pipeline import about_models, account_of, shared_part
from fedpn.serving.bundle import write_models

Node = Mapping[str, Any]
Act = Callable[["Visit", Slots], RecordDict]


class Visit:
    """All that a node has before it when it is told something."""

    def __init__(
        self, order: Order, config: Config, share: Share, node: Node, masked: bool
    ) -> None:
        # Faults are made on purpose in a simulator only.
        self.order, self.config = order, replace(config, faults=FaultSettings())
        self.share = share
        # By what masks it, not by what a server says: an upload in clear must not pass for masked.
        self.masked, self.wary = masked, bool(node.get("secure", False))
        self.state = NodeState(Path(str(node["state-dir"])), order.run, share.fingerprint())

    def setup(self) -> Setup:
        return self.share.setup(self.config, self.order.model)

    def phase(self) -> Phase:
        """The phase that the server names."""
        change = change_phases(self.config, leaves=False)
        columns = column_phases(self.share.dataset.features, self.config.data.categories)
        before = [*columns, SumMoments()]
        phases = [*before, *phases_of(self.config), *change]
        for phase in phases:
            if phase.name == self.order.phase:
                return phase
        raise UserError(f"this node's fedpn knows no phase {self.order.phase!r}")

    def memory(self, setup: Setup) -> Slots:
        """What the node remembers of its last round that counted, or has at first."""
        labels = setup.labels(self.share.rows)
        first = self.config.method.enroll(setup.model.task, setup.fresh, labels)
        if not self.order.base:
            return first
        kept = self.state.load(self.order.base, tuple(first))
        # Files sort their names; sums over entries depend on their order in the last bits.
        return {role: {name: kept[role][name] for name in first[role]} for role in first}


def answer(content: RecordDict, node: Node, act: Act) -> RecordDict:
    """Does what a message tells; a mistake is told by the node's name."""
    name = str(node.get("name", node.get("partition-id", "a node")))
    try:
        order = read_order(content)
        config = read_config(order.config)
        if "state-dir" not in node:
            raise UserError("a node needs state-dir=PATH, where it keeps what is its own")
        share = _open(node, config)
        roles = tuple(filter(None, order.roles.split(",")))
        slots = unpack(content, roles) if roles else {}
        masked = MASKS in content.config_records
        return act(Visit(order, config, share, node, masked), slots)
    except UserError as error:
        return pack_report(Report(name, error=str(error)))
    except Exception as error:
        traceback.print_exc()
        return pack_report(Report(name, error=f"{type(error).__name__}; its log tells more"))


def _open(node: Node, config: Config) -> Share:
    """Opens the node's share; what is wrong with files of its own is for its own log."""
    try:
        return open_share(node, config)
    except UserError as error:
        if "data" not in node:
            raise
        print(f"fedpn: {error}", file=sys.stderr, flush=True)
        raise UserError("its data cannot be read as the settings ask; its log tells why") from None


def introduce(visit: Visit, server: Slots) -> RecordDict:
    """Tells the node's name and the form of its data; what is odd about them, its own log."""
    if visit.share.partition is None:
        for remark in visit.share.dataset.remarks:
            print(f"fedpn: {remark}", file=sys.stderr, flush=True)
    return pack_report(Report(visit.share.name, facts=json.dumps(visit.share.introduce())))


def play(visit: Visit, server: Slots) -> RecordDict:
    """Plays the node's part of a phase whose statistics are summed."""
    share, order, phase = visit.share, visit.order, visit.phase()
    if visit.wary and not visit.masked and not phase.open:
        raise UserError("this node uploads under a mask only (fedpn flower run --secure)")
    setup = visit.setup()
    server = on_device(server, setup.device)
    memory: Slots = {}
    if phase.remembers:
        memory = on_device(visit.memory(setup), setup.device)
    observe = None
    if not phase.remembers and setup.network is not None:
        observe = setup.observer(visit.config.method, server)
    reply = phase.client(Site(share.client, setup, order.round, observe), server, memory)
    if phase.remembers:
        visit.state.save(order.round + 1, reply.memory, order.base)
    if visit.masked:
        from fedpn.flower.app.secure import maskable, maskable_sums

        if not phase.is_move:
            sums = map_slots(lambda t: t.double() * reply.weight, reply.statistics)
            return maskable_sums(flatten(sums), reply.weight)
        moved = {r: zip_with(torch.sub, p, server[r]) for r, p in reply.statistics.items()}
        return maskable(flatten(moved), len(share.rows), reply.loss)
    report = Report(share.name, loss=reply.loss, weight=float(reply.weight))
    return pack_report(report, reply.statistics)


def personalise(visit: Visit, server: Slots) -> RecordDict:
    """Makes the node's own model, calibrates it, keeps it as a bundle, and tells how good it is."""
    config, share, setup = visit.config, visit.share, visit.setup()
    server = on_device(server, setup.device)
    site = Site(share.client, setup, 0, setup.observer(config.method, server))
    memory = on_device(visit.memory(setup), setup.device)
    record: Any = None
    phases = [phase for phase in phases_of(config) if not phase.sums]
    for phase in phases if visit.order.base else late_phases(config):
        reply = phase.client(site, server, memory)
        memory, record = reply.memory, reply.record
    account = account_of(config, setup.blueprint.shape)
    about = replace(about_models(config, setup, account), clients=(share.name,))
    write_models(visit.state.draft, about, shared_part(config, server), [memory])
    store.seal(visit.state.place / "draft")
    visit.state.publish()
    figures = about_client(setup.federation, share.client) | client_metrics(record, config.headline)
    if share.partition is None:
        # Which labels a node has is its own affair.
        figures |= {"classes": None, "confusion": None}
    return pack_report(Report(share.name, facts=json.dumps(figures)))
