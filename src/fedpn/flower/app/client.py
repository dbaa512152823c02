"""What a node does: introduces itself, plays its part of a round, makes its own model."""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import RecordDict

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.trees import Slots, flatten, map_slots
from fedpn.federated.gather import moves
from fedpn.federated.phase import on_device
from fedpn.federated.site import Site
from fedpn.flower.app.client_app import MASKS
from fedpn.flower.app.noise import noised
from fedpn.flower.app.own import own_key
from fedpn.flower.app.policy import check_steps
from fedpn.flower.app.records import Report, pack_report, unpack
from fedpn.flower.app.state import DRAFT
from fedpn.flower.app.told import Told
from fedpn.flower.app.visit import Visit, begin
from fedpn.runs.code import keep_code, own_code
from fedpn.runs.config import to_tree
from fedpn.runs.measure import about_client, client_metrics
from fedpn.runs.phases import late_phases, phases_of
from fedpn.runs.pipeline import about_models, account_of, shared_part
from fedpn.serving.bundle import write_models

Node = Mapping[str, Any]
Act = Callable[[Visit, Slots], RecordDict]


def answer(content: RecordDict, node: Node, act: Act) -> RecordDict:
    """Does what a message tells; a mistake is told by the node's name.

    What went wrong with data of the node's own is for its own log: words about a cell may hold it.
    """
    name = str(node.get("name", node.get("partition-id", "a node")))
    visit = None
    try:
        visit = begin(content, node, MASKS in content.config_records)
        return act(visit, _slots(content, visit.order.roles))
    except UserError as error:
        if "data" not in node or isinstance(error, Told):
            return pack_report(Report(name, error=str(error)))
        print(f"fedpn: {error}", file=sys.stderr, flush=True)
        what = repr(visit.order.phase) if visit else "what it was asked"
        return pack_report(Report(name, error=f"it could not do {what}; its log tells why"))
    except Exception as error:
        traceback.print_exc()
        return pack_report(Report(name, error=f"{type(error).__name__}; its log tells more"))


def _slots(content: RecordDict, roles: str) -> Slots:
    """What comes with an order."""
    named = tuple(filter(None, roles.split(",")))
    try:
        return unpack(content, named) if named else {}
    except ValueError as error:
        raise Told(f"the server's tensors cannot be read: {error}") from None


def introduce(visit: Visit, server: Slots) -> RecordDict:
    """Tells the node's name and the form of its data; what is odd about them, its own log."""
    if visit.share.partition is None:
        for remark in visit.share.dataset.remarks:
            print(f"fedpn: {remark}", file=sys.stderr, flush=True)
    facts = visit.share.introduce(visit.policy.names)
    return pack_report(Report(visit.share.name, facts=json.dumps(facts)))


def play(visit: Visit, server: Slots) -> RecordDict:
    """Plays the node's part of a phase whose statistics are summed."""
    share, order, phase, policy = visit.share, visit.order, visit.phase(), visit.policy
    if visit.wary and not visit.masked:
        raise Told("this node uploads under a mask only (fedpn flower run --secure)")
    if policy.noise and not phase.is_move:
        raise Told(
            f"this node adds noise to what it sends, and has none for {phase.name!r}: it takes "
            "part in runs with aggregation.rule=private, on pictures"
        )
    mark = visit.check_question(phase, server)
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
    statistics = reply.statistics
    if policy.noise:
        key = own_key(visit.state.home, f"noise of {order.run}, {mark}, {order.base}")
        statistics = noised(server, statistics, policy.clip, policy.noise, key)
    if visit.masked:
        from fedpn.flower.app.secure import maskable, maskable_sums, noted

        if not phase.is_move:
            sums = map_slots(lambda t: t.double() * reply.weight, statistics)
            told = maskable_sums(flatten(sums), reply.weight, phase.wide)
        else:
            moved = flatten(moves(server, statistics))
            counts = {n for n, t in flatten(server).items() if not t.is_floating_point()}
            told = maskable(moved, counts, len(share.rows), reply.loss)
        return noted(told, visit.state.place, mark)
    report = Report(share.name, loss=reply.loss, weight=float(reply.weight))
    return pack_report(report, statistics)


def personalise(visit: Visit, server: Slots) -> RecordDict:
    """Makes the node's own model, calibrates it, keeps it as a bundle, and tells how good it is."""
    config, share, setup = visit.config, visit.share, visit.setup()
    visit.check_question(None, server)
    check_steps(config, visit.policy, len(share.rows), late=not visit.order.base)
    server = on_device(server, setup.device)
    site = Site(share.client, setup, 0, setup.observer(config.method, server))
    memory = on_device(visit.memory(setup), setup.device)
    record: Any = None
    phases = [phase for phase in phases_of(visit.drawing) if not phase.sums]
    for phase in phases if visit.order.base else late_phases(visit.drawing):
        reply = phase.client(site, server, memory)
        memory, record = reply.memory, reply.record
    account = account_of(config, setup.blueprint.shape)
    about = replace(about_models(config, setup, account), clients=(share.name,))
    write_models(visit.state.draft, about, shared_part(config, server), [memory])
    keep_code(own_code(to_tree(config)), visit.state.place / DRAFT)
    store.seal(visit.state.place / DRAFT)
    visit.state.publish()
    figures = about_client(setup.federation, share.client) | client_metrics(record, config.headline)
    if share.partition is None:
        # Which labels a node has is its own affair.
        figures |= {"classes": None, "confusion": None}
    return pack_report(Report(share.name, facts=json.dumps(figures)))
