"""The server's part on Flower: rounds, checkpoints, the personal stage, results."""

import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import torch
from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedpn.core import store
from fedpn.core.trees import Params, Slots, flatten, public, unflatten
from fedpn.federated.gather import Gatherer
from fedpn.federated.rounds import cut_history
from fedpn.federated.simulator import Round, sample
from fedpn.flower.app.book import Book, open_book
from fedpn.flower.app.records import PERSONALISE, TRAIN, Order, pack_order
from fedpn.flower.app.roster import Reply, Roster
from fedpn.flower.app.terms import Terms
from fedpn.flower.app.uploads import Refused, read_figures, read_upload
from fedpn.nn.blueprint import Blueprint
from fedpn.nn.task import Model
from fedpn.reporting import report
from fedpn.runs.config import to_tree
from fedpn.runs.evaluate import bring_together
from fedpn.runs.pipeline import Clock, headed, refuse_changes, score_of, stored
from fedpn.runs.prepare import draw_model, plan_model
from fedpn.serving.bundle import write_shared

Event = dict[str, Any]
Tell = Callable[[Event], None]


def serve(grid: Grid, terms: Terms, tell: Tell) -> dict[str, Any]:
    """Conducts a whole run; returns the metrics."""
    clock, config, out = Clock(), terms.config, terms.out
    store.claim(out, terms.resume)
    if terms.resume:  # with fewer nodes than before, perhaps
        refuse_changes(replace(config, clients=stored(out)["clients"]), out)
    else:
        store.write_toml(out / "config.toml", to_tree(config))
    book = open_book(out) if terms.resume else None
    conductor = Conductor(grid, terms, tell, book)
    conductor.gather_nodes()
    conductor.play_rounds()
    clock.lap("federate")
    figures = conductor.personalise()
    clock.lap("personalise")
    results = headed(config, config.dataset, len(conductor.names), figures)
    clock.lap("evaluate")
    conductor.write(results)
    clock.lap("report")
    store.write_json(out / "timings.json", clock.laps | {"total": clock.total})
    store.seal(out)
    tell({"done": str(out)})
    return results


class Conductor:
    """Leads the nodes through a run."""

    def __init__(self, grid: Grid, terms: Terms, tell: Tell, book: Book | None) -> None:
        self.terms, self.config, self.tell = terms, terms.config, tell
        run = book.run if book else secrets.token_hex(8)
        self.roster = Roster(grid, Order(run, terms.text), self.warn, terms.patience)
        self.begun = book
        # Noise that others could draw again would protect nobody.
        private = self.config.aggregation.rule == "private"
        self.gatherer = Gatherer(
            self.config.method,
            secrets.randbits(63) if private else self.config.seed,
            self.config.aggregation,
            self.config.faults.max_norm,
        )
        self.book: Book
        self.model: Model
        self.expected: Slots

    @property
    def names(self) -> list[str]:
        return list(self.roster.members)

    def warn(self, text: str) -> None:
        self.tell({"warning": text})

    def gather_nodes(self) -> None:
        """Waits for the nodes, and settles the model with them, or finds it as it was settled."""
        self.tell({"stage": "wait", "done": 0, "of": self.terms.nodes})
        known = self.begun.names if self.begun else []
        missing = self.roster.wait(self.terms.nodes, known, self.terms.timeout)
        there = self.roster.present
        if len(there) < self.terms.nodes:
            lost = f"; missing: {', '.join(missing)}" if missing else self._lost_partitions()
            raise RuntimeError(
                f"{len(there)} of {self.terms.nodes} nodes came within "
                f"{self.terms.timeout:g} s ({', '.join(there) or 'none'}){lost}"
            )
        if missing:
            self.warn(f"the run goes on without {', '.join(missing)}")
        self.roster.put_in_order(known)
        if self.begun:
            model = self.begun.model
        else:
            members = list(self.roster.members.values())
            total = reduce(add, (member.moments for member in members))
            first = members[0]
            blueprint = plan_model(self.config, first.shape, len(first.classes), total)
            model = json.dumps(blueprint._asdict())
        here = replace(self.config, train=replace(self.config.train, device="cpu"))
        self.model, fresh = draw_model(here, Blueprint(**json.loads(model)))
        server = self.config.method.init(self.model.task, fresh)
        self.book = self.begun or Book(self.roster.order.run, model, server)
        self.expected = self._template(server, fresh)
        self._save()
        cut_history(self.terms.out, self.book.round)

    def _save(self) -> None:
        self.book.names = self.names
        self.book.save(self.terms.out)

    def _lost_partitions(self) -> str:
        partitions = [member.partition for member in self.roster.members.values()]
        if None in partitions or not partitions:
            return ""
        lost = [str(p) for p in range(self.terms.nodes) if p not in partitions]
        return f"; missing: partition {', '.join(lost)}"

    def _template(self, server: Slots, fresh: Params) -> Slots:
        """The form that uploads must have."""
        method, task = self.config.method, self.model.task
        sent = public(server)
        memory = method.enroll(task, fresh, torch.zeros(1, dtype=torch.long))
        upload, _ = method.finish(task, sent, memory, method.start(task, sent, memory))
        return upload

    def play_rounds(self) -> None:
        """Plays round after round; each is on disk before the next is told."""
        empty, of = 0, self.config.rounds
        while self.book.round < of:
            began = time.perf_counter()
            record = self._round()._replace(seconds=time.perf_counter() - began)
            self._save()
            with (self.terms.out / "history.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record._asdict() | {"accuracy": None}) + "\n")
            lost = len(record.dropped) + len(record.refused)
            facts = {"loss": record.loss, "left out": lost or None}
            self.tell({"stage": "federate", "done": record.round, "of": of, **facts})
            empty = 0 if record.loss is not None else empty + 1
            never = record.round == of and not self.book.bases
            if empty >= self.config.faults.patience or never:
                raise RuntimeError(
                    f"{empty} rounds in a row had no valid upload: all nodes vanished or failed"
                )

    def _round(self) -> Round:
        book, round_ = self.book, self.book.round
        self.roster.look()
        if not self.roster.present:
            self.roster.wait(1, [], self.terms.timeout)
        joined = sample(len(self.names), self.config.train.join, self.config.seed, round_)
        chosen = {int(i): self.names[i] for i in joined}
        sent = public(book.server)
        if self.terms.secure:
            return self._masked_round(sent, chosen)
        replies = self.roster.ask(
            TRAIN, {name: self._order(name, sent) for name in chosen.values()}
        )
        parts, refused, loss = [], [], 0.0
        for number, name in chosen.items():
            if name not in replies:
                continue
            try:
                upload = self._upload(sent, replies[name])
            except Refused as error:
                self.warn(f"{name} {error}")
                refused.append(number)
                continue
            weight = float(self.roster.members[name].rows)
            parts.append(self.gatherer.part(upload, torch.tensor([weight])))
            loss += weight * replies[name].report.loss
            book.bases[name] = round_ + 1
        dropped = [number for number, name in chosen.items() if name not in replies]
        book.round += 1
        record = Round(book.round, None, len(joined), dropped, refused, 0.0, 0.0)
        if not parts:
            return record
        total = float(sum(part.weights.sum() for part in parts))
        moved = self.gatherer.advance(book.server, sent, parts, len(self.names), round_)
        book.server = moved.server
        return record._replace(loss=loss / total, norm=moved.norm)

    def _masked_round(self, sent: Slots, chosen: dict[int, str]) -> Round:
        """A round in which the server sees the sum of the uploads alone."""
        from fedpn.flower.app.secure import Sum

        book, there = self.book, self.roster.present
        names = {there[name]: name for name in chosen.values() if name in there}
        contents = {number: self._order(name, sent) for number, name in names.items()}
        heaviest = max(member.rows for member in self.roster.members.values())
        total = Sum(self.roster.grid, self.terms.patience, heaviest)
        found = total(contents, flatten(self.expected), book.round)
        heard = {names[number]: loss for number, loss in found.losses.items()} if found else {}
        dropped = [number for number, name in chosen.items() if name not in heard]
        book.round += 1
        record = Round(book.round, None, len(chosen), dropped, [], 0.0, 0.0)
        if found is None:
            self.warn("the masks of this round could not be taken off: too few nodes stayed")
            return record
        flat = flatten(sent)
        mean = {
            name: (flat[name].double() + move).to(flat[name].dtype)
            for name, move in found.mean.items()
        }
        book.bases |= dict.fromkeys(heard, book.round)
        moved = self.gatherer.settle(
            book.server, unflatten(mean, tuple(self.expected)), len(heard) / len(self.names)
        )
        book.server = moved.server
        rows = {name: self.roster.members[name].rows for name in heard}
        loss = sum(rows[name] * told for name, told in heard.items()) / sum(rows.values())
        return record._replace(loss=loss, norm=moved.norm)

    def _order(self, name: str, slots: Slots) -> RecordDict:
        order = replace(
            self.roster.order,
            model=self.book.model,
            roles=",".join(slots),
            round=self.book.round,
            base=self.book.bases.get(name, 0),
        )
        return pack_order(order, slots)

    def _upload(self, sent: Slots, reply: Reply) -> Slots:
        """A node's upload, or why it does not count."""
        if reply.report.error:
            raise Refused(f"failed: {reply.report.error}")
        upload = read_upload(reply.content, self.expected)
        if not bool(self.gatherer.valid(sent, upload, 1)) or not math.isfinite(reply.report.loss):
            raise Refused("uploaded what is not finite, or moved too far")
        return upload

    def personalise(self) -> dict[str, Any]:
        """Has every node make its own model; nodes that are away are waited for."""
        until = time.monotonic() + max(self.terms.timeout, self.terms.patience)
        trees: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        while left := [name for name in self.names if name not in trees | failed]:
            missing = self.roster.wait(0, left, max(0.0, min(10.0, until - time.monotonic())))
            ready = [name for name in left if name not in missing]
            orders = {name: self._order(name, self.book.server) for name in ready}
            for name, reply in self.roster.ask(PERSONALISE, orders).items():
                try:
                    trees[name] = read_figures(reply)
                except Refused as error:
                    failed[name] = str(error)
            self.tell({"stage": "personalise", "done": len(trees), "of": len(self.names)})
            if time.monotonic() > until:
                break
        for name in self.names:
            if name not in trees:
                self.warn(f"{name} has no model of its own: {failed.get(name, 'it is away')}")
        if not trees:
            raise RuntimeError("no node could make a model of its own")
        numbered = [
            trees[name] | {"client": number}
            for number, name in enumerate(self.names)
            if name in trees
        ]
        return bring_together(numbered, score_of(self.config))

    def write(self, results: dict[str, Any]) -> None:
        """Writes results in the form of any run; personal models stay with their nodes."""
        self.tell({"stage": "report", "done": 0, "of": 1})
        out, members = self.terms.out, self.roster.members
        first = next(iter(members.values()))
        shared = self.config.method.shared(self.book.server)
        blueprint = Blueprint(**json.loads(self.book.model))
        notes = " ".join(sorted({member.note for member in members.values() if member.note}))
        write_shared(out, blueprint, first.classes, notes, self.config, shared, self.names)
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
