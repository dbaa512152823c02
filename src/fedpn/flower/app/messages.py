"""The transport of Flower: clients are nodes, asked by messages; what they remember stays there."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from flwr.app import RecordDict

from fedpn.core.trees import (
    Params,
    Slots,
    flatten,
    is_wide,
    map_slots,
    not_finite,
    public,
    unflatten,
)
from fedpn.data.dataset import Array
from fedpn.data.recipe import Recipe
from fedpn.federated import plausible
from fedpn.federated.checkpoint import State
from fedpn.federated.conductor import Heard
from fedpn.federated.gather import Gatherer, Part, Total
from fedpn.federated.listener import Listener
from fedpn.federated.phase import Phase
from fedpn.federated.site import Network
from fedpn.flower.app.costs import Costs
from fedpn.flower.app.figures import hold_to_most, read_figures
from fedpn.flower.app.reading import Reading
from fedpn.flower.app.records import PERSONALISE, SUM, TRAIN, Agreed, pack_order, write_agreed
from fedpn.flower.app.roster import Reply, Roster
from fedpn.flower.app.standing import read_nodes
from fedpn.flower.app.terms import Terms
from fedpn.flower.app.uploads import Refused

FIRST = 3.0  # times a model's own length that a first masked move may be
TRIES = 3  # times that a node is asked for its sums, or to make its own model


class Messages:
    """Asks nodes, by the names that they give themselves."""

    def __init__(self, roster: Roster, terms: Terms, gatherer: Gatherer) -> None:
        self.roster, self.terms, self.gatherer = roster, terms, gatherer
        self.method = terms.config.method
        self.model = ""  # what is agreed on, as JSON
        self.recipe: Recipe | None = None  # what becomes of columns, where not all are numbers
        self.bases: dict[str, int] = {}  # each node's last round that counted
        self.form: Slots | None = None  # that uploads of a round must have
        self.given_up: set[str] = set()  # nodes that were waited for in vain
        self.losses: dict[str, float] = {}  # each node's last one
        self.refusals: dict[str, str] = {}  # why a node's last answer did not count
        self.longest = 0.0  # move under masks that is believed
        self.costs = Costs(roster)

    @property
    def names(self) -> list[str]:
        return list(self.roster.members)

    def agree(self, recipe: Recipe) -> None:
        """From now on nodes are told what becomes of the columns of their tables."""
        self.recipe = recipe
        self.model = write_agreed(Agreed(None, recipe))

    def settle(self, network: Network) -> None:
        """From now on nodes are told of the network."""
        self.model = write_agreed(Agreed(network.blueprint, self.recipe))
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
        """Asks nodes, and weighs what passes."""
        before = self.costs.now(self.names)
        heard = self._gather(phase, state, clients)
        return heard._replace(cost=self.costs.since(before, self.names))

    def _gather(self, phase: Phase, state: State, clients: Array) -> Heard:
        names = self.names
        chosen = {int(number): names[number] for number in clients}
        # After the rounds nodes need all that the models are made of, as in their personal stage.
        sent = public(state.server) if phase.remembers else phase.reads(state.server)
        if self.terms.secure:
            return self._masked(phase, state, sent, chosen)
        if phase.remembers:
            orders = {n: self._order(n, phase, state.round, sent) for n in chosen.values()}
            replies = self.roster.ask(TRAIN, orders)
        else:  # a round goes on without a node; sums are asked for once, and lack it for good
            make = partial(self._order, phase=phase, round_=state.round, slots=sent)
            turns = self._ask_all(SUM, list(chosen.values()), make, self.terms.timeout)
            replies = {name: reply for turn in turns for name, reply in turn.items()}
            self._tell_missing(phase, [n for n in chosen.values() if n not in replies])
        uploads, refused = self._read(phase, sent, chosen, replies)
        parts: list[Part] = []
        loss = 0.0
        for number, upload in uploads.items():
            name = chosen[number]
            # Of a round a node weighs by the rows that it told at first, not by what it says now.
            rows, told = self.roster.members[name].rows, replies[name].report
            weight = float(rows if phase.remembers else told.weight)
            kind = torch.float32 if phase.is_move else torch.float64
            stacked = map_slots(lambda t: t[None], upload)
            part = self.gatherer.part(
                sent, stacked, torch.tensor([weight], dtype=kind), phase.is_move
            )
            parts = self.gatherer.collect(parts, part, phase.is_move)
            loss += weight * told.loss
            if phase.remembers:
                self.bases[name] = state.round + 1
                self.losses[name] = told.loss
        dropped = [number for number, name in chosen.items() if name not in replies]
        if not parts:
            return Heard(None, None, dropped, refused)
        total = self.gatherer.total(sent, parts, state.round, phase.is_move, len(names))
        return Heard(total, loss / total.weight, dropped, refused)

    def _read(
        self, phase: Phase, sent: Slots, chosen: dict[int, str], replies: dict[str, Reply]
    ) -> tuple[dict[int, Slots], list[int]]:
        """The uploads that count, and who sent others."""
        told = {number: replies[name] for number, name in chosen.items() if name in replies}
        rows = {number: self.roster.members[chosen[number]].rows for number in told}
        reading = Reading(phase, sent, rows, self.gatherer)
        uploads, refused = reading.read(told, self.form if phase.remembers else None)
        for number, why in refused.items():
            self.refuse(chosen[number], why)
        return uploads, sorted(refused)

    def refuse(self, name: str, why: str) -> None:
        """Says whose answer does not count."""
        self.refusals[name] = why
        self.roster.warn(f"{name} {why}")

    def _masked(self, phase: Phase, state: State, sent: Slots, chosen: dict[int, str]) -> Heard:
        """A turn in which the server sees the sum of the uploads alone."""
        from fedpn.flower.app.border import Border
        from fedpn.flower.app.secure import Sum, read_moves, read_sums
        from fedpn.flower.app.whole import DIGIT

        if not phase.remembers:
            wanted = [name for name in chosen.values() if name not in self.given_up]
            missing = self.roster.wait(0, wanted, self.terms.timeout)
            self.given_up |= set(missing)
            self._tell_missing(phase, missing)
        there = self.roster.present
        names = {there[name]: name for name in chosen.values() if name in there}
        contents = {n: self._order(name, phase, state.round, sent) for n, name in names.items()}
        border = Border(
            self.roster.post, lambda n, why: self.refuse(names[n], f"is not under the masks: {why}")
        )
        total = Sum(border, self.terms.patience, 1, DIGIT)
        if phase.is_move:
            heaviest = max(member.rows for member in self.roster.members.values())
            total = Sum(border, self.terms.patience, heaviest)
        found = total(contents, state.round)
        losses = {names[number]: loss for number, loss in found.losses.items()} if found else {}
        dropped = [number for number, name in chosen.items() if name not in losses]
        if found is None:
            self.roster.warn("the masks of this round could not be taken off: too few nodes stayed")
            return Heard(None, None, dropped, [])
        share = len(losses) / len(self.names)
        if not phase.is_move:
            summed, weight = read_sums(found)
            return self._believe(phase, Total(unflatten(summed), weight, share), dropped)
        assert self.form is not None
        flat = flatten(sent)
        moves = read_moves(found, flatten(self.form))
        weights = {name: t for name, t in moves.items() if is_wide(flat[name])}
        if plausible.length(weights) > max(FIRST * plausible.length(flat), self.longest):
            self.roster.warn("the masked sum of this round is absurd: somebody lied, under a mask")
            return Heard(None, None, dropped, [])
        self.longest = max(self.longest, plausible.FACTOR * plausible.length(weights))
        mean = moves | {n: (flat[n].double() + t).to(flat[n].dtype) for n, t in weights.items()}
        self.bases |= dict.fromkeys(losses, state.round + 1)
        rows = {name: self.roster.members[name].rows for name in losses}
        weight = float(sum(rows.values()))
        sums = map_slots(lambda t: t * weight, unflatten(mean, tuple(self.form)))
        loss = sum(rows[name] * told for name, told in losses.items()) / weight
        return Heard(Total(sums, weight, share, sent), loss, dropped, [])

    def _believe(self, phase: Phase, total: Total, dropped: list[int]) -> Heard:
        """A masked sum, where it can be the sum of what was asked for."""
        try:
            objection = not_finite(total.sum) or phase.objection(total.sum)
        except (KeyError, IndexError, RuntimeError, ValueError) as error:
            objection = f"it lacks parts ({type(error).__name__})"
        if objection:
            self.roster.warn(f"the masked sum of {phase.name!r} is absurd ({objection})")
            return Heard(None, None, dropped, [])
        return Heard(total, 0.0, dropped, [])

    def visit(
        self, phases: Sequence[Phase], server: Slots, listener: Listener
    ) -> dict[int, dict[str, Any]]:
        """Has every node make its own model; nodes that are away are waited for."""
        figures: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        make = partial(self._order, phase=phases[0], round_=0, slots=server)
        seconds = max(self.terms.timeout, self.terms.patience)
        for replies in self._ask_all(PERSONALISE, self.names, make, seconds):
            for name, reply in replies.items():
                try:
                    member = self.roster.members[name]
                    figures[name] = read_figures(reply, len(member.classes), member.rows)
                except Refused as error:
                    failed[name] = str(error)
            listener.progress("personalise", len(figures), len(self.names))
        failed |= hold_to_most(figures, self.terms.config)
        figures = {name: told for name, told in figures.items() if name not in failed}
        for name in self.names:
            if name not in figures:
                why = failed.get(name, "it is away")
                self.roster.warn(f"{name} has no model of its own: {why}")
        if not figures:
            raise RuntimeError("no node could make a model of its own")
        last = phases[-1].name
        return {i: {last: figures[name]} for i, name in enumerate(self.names) if name in figures}

    def _ask_all(
        self, kind: str, names: Sequence[str], make: Callable[[str], RecordDict], seconds: float
    ) -> Iterator[dict[str, Reply]]:
        """Asks nodes; who says nothing is asked again, who is away is waited for.

        Waiting goes by progress: the seconds begin anew with every reply.
        """
        until, left = time.monotonic() + seconds, list(names)
        asked: Counter[str] = Counter()
        while left:
            awaited = [name for name in left if name not in self.given_up]
            self.roster.wait(0, awaited, max(0.0, min(10.0, until - time.monotonic())))
            ready = [name for name in left if name in self.roster.present]
            replies = self.roster.ask(kind, {name: make(name) for name in ready})
            yield replies
            asked.update(ready)
            left = [name for name in left if name not in replies and asked[name] < TRIES]
            if replies:
                until = time.monotonic() + seconds
            late = time.monotonic() > until and not set(left) & self.roster.present.keys()
            if late or self.given_up.issuperset(left):
                self.given_up |= set(left)
                return

    def _tell_missing(self, phase: Phase, names: Sequence[str]) -> None:
        for name in names:
            self.roster.warn(f"{name} is away: {phase.name!r} is done without its rows")

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
