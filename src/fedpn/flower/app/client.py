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

from fedpn.algorithms.base import train
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.task import Plan
from fedpn.core.trees import Slots, flatten, map_slots, zip_with
from fedpn.data.batches import stack_plans
from fedpn.federated.rounds import Company
from fedpn.federated.simulator import plan_client
from fedpn.flower.app.client_app import MASKS
from fedpn.flower.app.records import Order, Report, pack_report, read_config, read_order, unpack
from fedpn.flower.app.share import Share, open_share
from fedpn.flower.app.state import NodeState
from fedpn.runs.config import Config
from fedpn.runs.evaluate import about_client, client_metrics, look
from fedpn.runs.pipeline import headline_of, personal_stage
from fedpn.runs.prepare import Prepared
from fedpn.serving.bundle import write_models

Node = Mapping[str, Any]
Act = Callable[["Desk", Slots], RecordDict]


class Desk:
    """All that a node has before it when it is told something."""

    def __init__(
        self, order: Order, config: Config, share: Share, node: Node, masked: bool
    ) -> None:
        self.order, self.config, self.share = order, config, share
        # By what masks it, not by what a server says: an upload in clear must not pass for masked.
        self.masked, self.wary = masked, bool(node.get("secure", False))
        self.state = NodeState(Path(str(node["state-dir"])), order.run, share.fingerprint())

    def ready(self) -> Prepared:
        return self.share.equip(self.config, self.order.model)

    def memory(self, ready: Prepared) -> Slots:
        """What the node remembers of its last round that counted, or has at first."""
        labels = ready.data.y[torch.from_numpy(self.share.rows)]
        first = self.config.method.enroll(ready.model.task, ready.fresh, labels)
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
        return act(Desk(order, config, share, node, masked), slots)
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


def introduce(desk: Desk, server: Slots) -> RecordDict:
    """Tells the node's name, the form of its data and sums for normalisation."""
    return pack_report(Report(desk.share.name, facts=json.dumps(desk.share.introduce())))


def play(desk: Desk, server: Slots) -> RecordDict:
    """Plays the node's part of a round."""
    config, share, order = desk.config, desk.share, desk.order
    if desk.wary and not desk.masked:
        raise UserError("this node uploads under a mask only (fedpn flower run --secure)")
    ready = desk.ready()
    drawn = plan_client(share.rows, share.client, config.train, config.seed, order.round)
    device = ready.data.x.device
    plan = Plan(*(t[0].to(device) for t in stack_plans([drawn])))
    server, memory = (_on(device, slots) for slots in (server, desk.memory(ready)))
    task, method = ready.model.task, config.method
    upload, memory, loss = train(method, task, ready.data, server, memory, plan, idle=False)
    desk.state.save(order.round + 1, memory, order.base)
    if desk.masked:
        from fedpn.flower.app.secure import maskable

        moved = {role: zip_with(torch.sub, params, server[role]) for role, params in upload.items()}
        return maskable(flatten(moved), len(share.rows), float(loss))
    return pack_report(Report(share.name, loss=float(loss)), upload)


def _on(device: torch.device, slots: Slots) -> Slots:
    return map_slots(lambda t: t.to(device), slots)


def personalise(desk: Desk, server: Slots) -> RecordDict:
    """Makes the node's own model, calibrates it, keeps it as a bundle, and tells how good it is."""
    config, share = desk.config, desk.share
    ready, mine = desk.ready(), [desk.share.client]
    people, observe, thresholds = personal_stage(
        config, ready, _on(ready.data.x.device, server), [desk.memory(ready)], Company(), mine
    )
    views = look(ready.federation, people, observe, thresholds, mine)
    place = desk.state.draft
    named = replace(share.dataset, clients=(share.name,))
    write_models(place, ready.blueprint, named, config, people, thresholds)
    store.seal(place)
    desk.state.publish()
    figures = about_client(ready.federation, share.client) | client_metrics(
        views[0], headline_of(config)
    )
    if share.partition is None:
        figures["classes"] = None  # which labels a node has is its own affair
    return pack_report(Report(share.name, facts=json.dumps(figures)))
