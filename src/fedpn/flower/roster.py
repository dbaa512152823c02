"""Who takes part: nodes by the names that they give themselves, whatever Flower calls them today.

A node that is restarted comes back under another number, and an error does not tell whose it is; so
names alone count, and a node is asked for its name when its number is new.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpn.data.normalise import Moments
from fedpn.flower.records import INTRODUCE, Order, Report, pack_order, read_report

PAUSE = 1.0  # seconds between looks for nodes
INTRODUCTION = 120.0  # seconds for a node to tell its name: others wait meanwhile

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """What the server knows of a node."""

    name: str
    rows: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    moments: Moments
    partition: int | None
    note: str


@dataclass(frozen=True)
class Reply:
    """A node's answer."""

    report: Report
    content: RecordDict


@dataclass
class Roster:
    """The nodes of a run: who was ever there, and under which number each is there now."""

    grid: Grid
    order: Order
    warn: Warn
    patience: float  # seconds for replies
    members: dict[str, Member] = field(default_factory=dict)  # in the order of their clients
    present: dict[str, int] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)  # numbers that did not introduce themselves

    def look(self) -> None:
        """Learns who is there; those who are new are asked for their names."""
        there = set(self.grid.get_node_ids())
        self.present = {name: i for name, i in self.present.items() if i in there}
        self.strangers &= there
        new = there - set(self.present.values()) - self.strangers
        if not new:
            return
        asked = {number: pack_order(self.order) for number in sorted(new)}
        told = self._send(INTRODUCE, asked, min(self.patience, INTRODUCTION))
        for number, reply in sorted(told.items(), key=lambda item: _place(item[1])):
            self._admit(number, reply)
        # Who said nothing is asked again at the next look; who said something wrong is not.

    def wait(self, count: int, names: Iterable[str], seconds: float) -> list[str]:
        """Waits for so many nodes, and for those of these names; returns the names still missing.

        A number of nodes that never came has no names.
        """
        until, wanted = time.monotonic() + seconds, set(names)
        while True:
            self.look()
            missing = sorted(wanted - self.present.keys())
            if not missing and len(self.present) >= count:
                return []
            if time.monotonic() > until:
                return missing
            time.sleep(PAUSE)

    def ask(self, kind: str, contents: dict[str, RecordDict]) -> dict[str, Reply]:
        """Sends to those who are there; returns what each who answered says."""
        numbers = {self.present[name]: c for name, c in contents.items() if name in self.present}
        replies = self._send(kind, numbers, self.patience)
        return {reply.report.name: reply for reply in replies.values()}

    def _send(self, kind: str, contents: dict[int, RecordDict], seconds: float) -> dict[int, Reply]:
        messages = [
            Message(content, dst_node_id=number, message_type=kind)
            for number, content in contents.items()
        ]
        replies = {}
        for message in self.grid.send_and_receive(messages, timeout=seconds):
            if message.has_error():
                self.warn(f"a node failed: {message.error.reason or message.error.code}")
                continue
            try:
                reply = Reply(read_report(message.content), message.content)
            except (KeyError, TypeError) as error:
                self.warn(f"a node answered what cannot be read: {error}")
                continue
            replies[message.metadata.src_node_id] = reply
        return replies

    def _admit(self, number: int, reply: Reply) -> None:
        report = reply.report
        if report.error:
            self.strangers.add(number)
            self.warn(f"{report.name} cannot take part: {report.error}")
            return
        try:
            member = _member(report)
        except (KeyError, TypeError, ValueError) as error:
            self.strangers.add(number)
            self.warn(f"{report.name} introduced itself in a way that cannot be read: {error}")
            return
        reason = self._objection(member)
        if reason:
            self.strangers.add(number)
            self.warn(f"{member.name} cannot take part: {reason}")
            return
        self.members.setdefault(member.name, member)
        self.present[member.name] = number

    def _objection(self, new: Member) -> str:
        """Why a node may not take part, if it may not."""
        if new.name in self.present:
            return "another node has its name; give each its own (fedpn flower supernode --name)"
        for old in self.members.values():
            if old.shape != new.shape:
                return f"its rows have the shape {new.shape}, and those of {old.name} {old.shape}"
            if old.classes != new.classes:
                return (
                    f"its classes are {', '.join(new.classes)}, and those of {old.name} are "
                    f"{', '.join(old.classes)}: name all of them in data.classes"
                )
            if old.features != new.features:
                return (
                    f"its columns are {', '.join(new.features)}, and those of {old.name} are "
                    f"{', '.join(old.features)}: name them in data.features"
                )
            same = new.partition is not None and old.partition == new.partition
            if same and old.name != new.name:
                return f"its partition {new.partition} is that of {old.name}"
        known = self.members.get(new.name)
        if known and known.rows != new.rows:
            return f"it has {new.rows} training rows now, and had {known.rows}"
        return ""


def _place(reply: Reply) -> tuple[int, str]:
    """Orders nodes by partition, and those with data of their own by name."""
    try:
        partition = json.loads(reply.report.facts)["partition"]
    except (ValueError, KeyError, TypeError):
        partition = None
    return (-1 if partition is None else int(partition)), reply.report.name


def _member(report: Report) -> Member:
    facts: dict[str, Any] = json.loads(report.facts)
    moments = Moments(*(np.asarray(column, np.float64) for column in facts["moments"]))
    if not all(np.isfinite(column).all() for column in moments) or (moments.counts <= 0).any():
        raise ValueError("its sums are not finite")
    return Member(
        report.name,
        int(facts["rows"]),
        tuple(map(int, facts["shape"])),
        tuple(map(str, facts["classes"])),
        tuple(map(str, facts["features"])),
        moments,
        None if facts["partition"] is None else int(facts["partition"]),
        str(facts["note"]),
    )
