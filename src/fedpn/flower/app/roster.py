"""Who takes part: nodes by the names that they give themselves, whatever Flower calls them today.

A node that is restarted comes back under another number, and an error does not tell whose it is; so
names alone count, and a node is asked for its name when its number is new.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpn.flower.app.records import INTRODUCE, Order, Report, pack_order, read_report

PAUSE = 1.0  # seconds between looks for nodes
TOLD = 60.0  # seconds between two tellings of the same
INTRODUCTION = 120.0  # seconds for a node to tell its name: others wait meanwhile
ASKED = 6  # times; on a busy machine a node takes minutes to start its first process

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """What the server knows of a node."""

    name: str
    rows: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    partition: int | None
    note: str
    raw: bool = False  # whether the columns of its table have yet to be prepared


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
    silent: dict[int, int] = field(default_factory=dict)  # how often they were asked in vain
    told: tuple[str, float] = ("", 0.0)  # who was said to be missing, and when

    def look(self) -> None:
        """Learns who is there; those who are new are asked for their names."""
        there = set(self.grid.get_node_ids())
        self.present = {name: i for name, i in self.present.items() if i in there}
        self.strangers &= there
        new = self._unknown()
        if not new:
            return
        asked = {number: pack_order(self.order) for number in sorted(new)}
        told = self._send(INTRODUCE, asked, min(self.patience, INTRODUCTION))
        for number, reply in sorted(told.items()):
            self._admit(number, reply)
        # Who says nothing is asked again at the next looks; who says something wrong is not.
        for number in new - told.keys():
            self.silent[number] = self.silent.get(number, 0) + 1
            if self.silent[number] >= ASKED:
                self.strangers.add(number)
                self.warn(f"a node has not told its name, asked {ASKED} times: it is left out")

    def wait(self, count: int, names: Iterable[str], seconds: float) -> list[str]:
        """Waits for so many nodes, and for those of these names; returns the names still missing.

        A number of nodes that never came has no names. Waiting goes by progress: the seconds begin
        anew with every node that comes, and one that is connected is asked as often as any is,
        however long that takes.
        """
        until, wanted = time.monotonic() + seconds, set(names)
        while True:
            before = self.present.keys() | set()
            self.look()
            missing = sorted(wanted - self.present.keys())
            if not missing and len(self.present) >= count:
                return []
            self._tell_missing(max(count, len(wanted | self.present.keys())), missing)
            if self.present.keys() - before:
                until = time.monotonic() + seconds
            if time.monotonic() > until and not self.silent.keys() & self._unknown():
                return missing
            time.sleep(PAUSE)

    def _tell_missing(self, count: int, missing: Sequence[str]) -> None:
        """Says who is there and who is not, where that is new or was said long ago."""
        here = ", ".join(self.present) or "none"
        words = [f"{len(self.present)} of {count} nodes are here: {here}"]
        unknown = self._unknown()
        for number in sorted(unknown):
            times = self.silent.get(number, 0)
            words.append(f"one is connected and has not told its name yet, asked {_times(times)}")
        if self.strangers:
            words.append(f"left out: {len(self.strangers)}")
        if missing:
            words.append(f"missing: {', '.join(missing)}")
        elif count > len(self.present) + len(unknown):
            words.append(f"{count - len(self.present) - len(unknown)} more to come")
        text, now = "; ".join(words), time.monotonic()
        if text != self.told[0] or now - self.told[1] > TOLD:
            self.told = text, now
            self.warn(text)

    def _unknown(self) -> set[int]:
        """Numbers that are there and have neither told their names nor been left out."""
        return set(self.grid.get_node_ids()) - set(self.present.values()) - self.strangers

    def ask(self, kind: str, contents: dict[str, RecordDict]) -> dict[str, Reply]:
        """Sends to those who are there; returns what each who answered says."""
        numbers = {self.present[name]: c for name, c in contents.items() if name in self.present}
        names = {number: name for name, number in self.present.items()}
        replies = {}
        for number, reply in self._send(kind, numbers, self.patience).items():
            if reply.report.name == names[number]:
                replies[names[number]] = reply
            else:
                self.warn(f"{names[number]} answered in the name of {reply.report.name}")
        return replies

    def leave_out(self, names: Iterable[str]) -> None:
        """From now on some nodes take no part, though they may be there."""
        for name in names:
            self.members.pop(name, None)
            number = self.present.pop(name, None)
            if number is not None:
                self.strangers.add(number)

    def put_in_order(self, names: Sequence[str]) -> None:
        """Numbers the nodes: those of these names first, then by partition, then by name."""
        known = {name: place for place, name in enumerate(names)}
        self.members = {
            name: self.members[name]
            for name in sorted(
                self.members,
                key=lambda name: (known.get(name, len(known)), *_place(self.members[name])),
            )
        }

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


def _times(count: int) -> str:
    """
    >>> _times(1), _times(2)
    ('once', '2 times')
    """
    return "once" if count == 1 else f"{count} times"


def _place(member: Member) -> tuple[int, str]:
    """Orders nodes by partition, and those with data of their own by name."""
    return (-1 if member.partition is None else member.partition), member.name


def _member(report: Report) -> Member:
    facts: dict[str, Any] = json.loads(report.facts)
    member = Member(
        report.name,
        int(facts["rows"]),
        tuple(map(int, facts["shape"])),
        tuple(map(str, facts["classes"])),
        tuple(map(str, facts["features"])),
        None if facts["partition"] is None else int(facts["partition"]),
        str(facts["note"]),
        bool(facts.get("raw", False)),
    )
    if member.rows < 1 or len(member.classes) < 2 or not member.shape:
        raise ValueError("it has no rows, no classes or no shape")
    return member
