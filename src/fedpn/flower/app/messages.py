"""The transport of Flower: clients are nodes, asked by messages; what they remember stays there."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import RecordDict

from fedpn.core.trees import Params, Slots, flatten, map_slots, public, unflatten
from fedpn.data.dataset import Array
from fedpn.federated.checkpoint import State
from fedpn.federated.conductor import Heard
from fedpn.federated.gather import Gatherer, Part, Total
from fedpn.federated.listener import Listener
from fedpn.federated.phase import Phase
from fedpn.federated.site import Network
from fedpn.flower.app.records import PERSONALISE, SUM, TRAIN, pack_order
from fedpn.flower.app.roster import Reply, Roster
from fedpn.flower.app.standing import read_nodes
from fedpn.flower.app.terms import Terms
from fedpn.flower.app.uploads import Refused, read_figures, read_upload


class Messages:
    """Asks nodes, by the names that they give themselves."""

    def __init__(self, roster: Roster, terms: Terms, gatherer: Gatherer) -> None:
        self.roster, self.terms, self.gatherer = roster, terms, gatherer
        self.method = terms.config.method
        self.model = ""  # the network, as JSON, once it is settled
        self.bases: dict[str, int] = {}  # each node's last round that counted
        self.form: Slots | None = None  # that uploads of a round must have

    @property
    def names(self) -> list[str]:
        return list(self.roster.members)

    def settle(self, network: Network) -> None:
        """From now on nodes are told of the network."""
        self.model = json.dumps(network.blueprint._asdict())
        method, task = self.method, network.model.task
        sent = public(method.init(task, network.fresh))
        memory = method.enroll(task, network.fresh, torch.zeros(1, dtype=torch.long))
        self.form, _ = method.finish(task, sent, memory, method.start(task, sent, memory))

    def muster(self) -> int:
        self.roster.look()
        if not self.roster.present:
            self.roster.wait(1, [], self.terms.timeout)
        return len(self.names)

    def gather(self, phase: Phase, state: State, clients: Array, listener: Listener) -> Heard:
        names = self.names
        chosen = {int(number): names[number] for number in clients}
        # After the rounds nodes need all that the models are made of, as in their personal stage.
        sent = public(state.server) if phase.remembers else state.server
        if self.terms.secure and not phase.open:
            return self._masked(phase, state, sent, chosen)
        kind = TRAIN if phase.remembers else SUM
        orders = {name: self._order(name, phase, state.round, sent) for name in chosen.values()}
        replies = self.roster.ask(kind, orders)
        form = self.form if phase.remembers else None
        parts: list[Part] = []
        refused, loss = [], 0.0
        for number, name in chosen.items():
            if name not in replies:
                continue
            try:
                upload, form = self._upload(phase, sent, replies[name], form)
            except Refused as error:
                self.roster.warn(f"{name} {error}")
                refused.append(number)
                continue
            # Of a round a node weighs by the rows that it told at first, not by what it says now.
            known = float(self.roster.members[name].rows)
            weight = known if phase.remembers else replies[name].report.weight
            weights = torch.tensor(
                [weight], dtype=torch.float32 if phase.is_move else torch.float64
            )
            part = self.gatherer.part(upload, weights, phase.is_move)
            parts = self.gatherer.collect(parts, part, phase.is_move)
            loss += weight * replies[name].report.loss
            if phase.remembers:
                self.bases[name] = state.round + 1
        dropped = [number for number, name in chosen.items() if name not in replies]
        if not parts:
            return Heard(None, None, dropped, refused)
        total = self.gatherer.total(sent, parts, state.round, phase.is_move, len(names))
        return Heard(total, loss / total.weight, dropped, refused)

    def _upload(
        self, phase: Phase, sent: Slots, reply: Reply, form: Slots | None
    ) -> tuple[Slots, Slots]:
        """A node's upload, or why it does not count; and the form that all must have."""
        if reply.report.error:
            raise Refused(f"failed: {reply.report.error}")
        upload, form = read_upload(reply.content, form)
        report = reply.report
        if not 0 < report.weight < math.inf:
            raise Refused(f"uploaded what cannot be: its weight is {report.weight}")
        if not bool(self.gatherer.valid(sent, upload, 1)) or not math.isfinite(report.loss):
            raise Refused("uploaded what is not finite, or moved too far")
        objection = phase.objection(map_slots(lambda t: t[0], upload))
        if objection:
            raise Refused(f"uploaded what cannot be: {objection}")
        return upload, form

    def _masked(self, phase: Phase, state: State, sent: Slots, chosen: dict[int, str]) -> Heard:
        """A turn in which the server sees the sum of the uploads alone."""
        from fedpn.flower.app.secure import Sum, read_moves, read_sums
        from fedpn.flower.app.whole import DIGIT

        assert self.form is not None
        there = self.roster.present
        names = {there[name]: name for name in chosen.values() if name in there}
        contents = {n: self._order(name, phase, state.round, sent) for n, name in names.items()}
        total = Sum(self.roster.grid, self.terms.patience, 1, DIGIT)
        if phase.is_move:
            heaviest = max(member.rows for member in self.roster.members.values())
            total = Sum(self.roster.grid, self.terms.patience, heaviest)
        found = total(contents, state.round)
        losses = {names[number]: loss for number, loss in found.losses.items()} if found else {}
        dropped = [number for number, name in chosen.items() if name not in losses]
        if found is None:
            self.roster.warn("the masks of this round could not be taken off: too few nodes stayed")
            return Heard(None, None, dropped, [])
        if not phase.is_move:
            summed, weight = read_sums(found)
            share = len(losses) / len(self.names)
            return Heard(Total(unflatten(summed), weight, share), 0.0, dropped, [])
        flat = flatten(sent)
        mean = {
            name: (flat[name].double() + move).to(flat[name].dtype)
            for name, move in read_moves(found, flatten(self.form)).items()
        }
        self.bases |= dict.fromkeys(losses, state.round + 1)
        rows = {name: self.roster.members[name].rows for name in losses}
        weight = float(sum(rows.values()))
        sums = map_slots(lambda t: t * weight, unflatten(mean, tuple(self.form)))
        loss = sum(rows[name] * told for name, told in losses.items()) / weight
        return Heard(Total(sums, weight, len(losses) / len(self.names)), loss, dropped, [])

    def visit(
        self, phases: Sequence[Phase], server: Slots, listener: Listener
    ) -> dict[int, dict[str, Any]]:
        """Has every node make its own model; nodes that are away are waited for."""
        until = time.monotonic() + max(self.terms.timeout, self.terms.patience)
        figures: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        while left := [name for name in self.names if name not in figures | failed]:
            missing = self.roster.wait(0, left, max(0.0, min(10.0, until - time.monotonic())))
            ready = [name for name in left if name not in missing]
            orders = {name: self._order(name, phases[0], 0, server) for name in ready}
            for name, reply in self.roster.ask(PERSONALISE, orders).items():
                try:
                    figures[name] = read_figures(reply, len(self.roster.members[name].classes))
                except Refused as error:
                    failed[name] = str(error)
            listener.progress("personalise", len(figures), len(self.names))
            if time.monotonic() > until:
                break
        for name in self.names:
            if name not in figures:
                why = failed.get(name, "it is away")
                self.roster.warn(f"{name} has no model of its own: {why}")
        if not figures:
            raise RuntimeError("no node could make a model of its own")
        last = phases[-1].name
        return {i: {last: figures[name]} for i, name in enumerate(self.names) if name in figures}

    def _order(self, name: str, phase: Phase, round_: int, slots: Slots) -> RecordDict:
        order = replace(
            self.roster.order,
            model=self.model,
            roles=",".join(slots),
            phase=phase.name,
            round=round_,
            base=self.bases.get(name, 0),
        )
        return pack_order(order, slots)

    def probe(self, server: Slots) -> float | None:
        return None  # rows are with the nodes

    def keep(self) -> tuple[Params, Mapping[str, str]]:
        return {}, {
            "run": self.roster.order.run,
            "model": self.model,
            "bases": json.dumps(self.bases),
            "nodes": json.dumps(self.names),
        }

    def restore(self, kept: Params, about: Mapping[str, str]) -> None:
        self.bases, _ = read_nodes(about)

    def failure(self, rounds: int) -> Exception:
        return RuntimeError(
            f"{rounds} rounds in a row had no valid upload: all nodes vanished or failed"
        )
