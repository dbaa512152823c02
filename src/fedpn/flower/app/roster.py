"""Who takes part: nodes by the names that they give themselves, whatever Flower calls them today.

A node that is restarted comes back under another number, and an error does not tell whose it is; so
names alone count, and a node is asked for its name when its number is new.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict

from fedpn import __version__
from fedpn.flower.app.member import (
    Form,
    Member,
    common_form,
    difference,
    read_member,
    too_many_rows,
)
from fedpn.flower.app.post import Post
from fedpn.flower.app.records import INTRODUCE, Order, Report, pack_order, read_report
from fedpn.runs.config import Config

PAUSE = 1.0  # seconds between looks for nodes
TOLD = 60.0  # seconds between two tellings of the same
INTRODUCTION = 120.0  # seconds for a node to tell its name: others wait meanwhile
ASKED = 6  # times; on a busy machine a node takes minutes to start its first process
LONGEST = 300  # characters of what a node says
TWIN = "another node has its name; give each its own (fedpn flower supernode --name)"

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Reply:
    """A node's answer."""

    report: Report
    content: RecordDict


@dataclass
class Roster:
    """The nodes of a run: who was ever there, and under which number each is there now."""

    post: Post
    order: Order
    config: Config
    warn: Warn
    patience: float  # seconds for replies
    members: dict[str, Member] = field(default_factory=dict)  # in the order of their clients
    present: dict[str, int] = field(default_factory=dict)
    strangers: dict[int, tuple[str, str]] = field(default_factory=dict)  # left out: who, why
    silent: dict[int, int] = field(default_factory=dict)  # how often they were asked in vain
    odd: dict[str, tuple[Member, int]] = field(default_factory=dict)  # of another form
    form: Form | None = None  # that all must have, once a run has begun
    told: tuple[str, float] = ("", 0.0)  # who was said to be missing, and when

    def look(self) -> None:
        """Learns who is there; those who are new are asked for their names."""
        there = set(self.post.get_node_ids())
        self.present = {name: i for name, i in self.present.items() if i in there}
        self.odd = {name: (m, i) for name, (m, i) in self.odd.items() if i in there}
        self.strangers = {
            i: (name, why)
            for i, (name, why) in self.strangers.items()
            # A twin may come in once the node that had its name is gone: it was restarted.
            if i in there and (why != TWIN or name in self.present or name in self.odd)
        }
        new = self._unknown()
        if not new:
            return
        asked = {number: pack_order(self.order) for number in sorted(new)}
        told = self._send(INTRODUCE, asked, min(self.patience, INTRODUCTION))
        for number, reply in sorted(told.items()):
            self._admit(number, reply)
        if self.form is None:
            self._agree()
        # Who says nothing is asked again at the next looks; who says something wrong is not.
        for number in new - told.keys():
            self.silent[number] = self.silent.get(number, 0) + 1
            if self.silent[number] >= ASKED:
                self._refuse(number, "a node", f"it has not told its name, asked {ASKED} times")

    def settle(self) -> None:
        """From now on all nodes that come must have the form of those that are there."""
        self.form = next(iter(self.members.values())).form

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
        left = len(self.strangers) + len(self.odd)
        if left:
            words.append(f"left out: {left}")
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
        known = {*self.present.values(), *(number for _, number in self.odd.values())}
        return set(self.post.get_node_ids()) - known - self.strangers.keys()

    def ask(self, kind: str, contents: dict[str, RecordDict]) -> dict[str, Reply]:
        """Sends to those who are there; returns what each who answered says."""
        numbers = {self.present[name]: c for name, c in contents.items() if name in self.present}
        names = {number: name for name, number in self.present.items()}
        replies = {}
        for number, reply in self._send(kind, numbers, self.patience).items():
            if number not in numbers:
                self.warn("a node answered that was not asked")
            elif reply.report.name == names[number]:
                replies[names[number]] = reply
            else:
                other = reply.report.name[:LONGEST]
                self.warn(f"{names[number]} answered in the name of {other}")
        return replies

    def leave_out(self, names: Iterable[str]) -> None:
        """From now on some nodes take no part, though they may be there."""
        for name in names:
            self.members.pop(name, None)
            number = self.present.pop(name, None)
            if number is not None:
                self.strangers[number] = name, "it was left out"

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
        for message in self.post.exchange(messages, seconds):
            if message.has_error():
                reason = str(message.error.reason or message.error.code)[:LONGEST]
                self.warn(f"a node failed: {reason}")
                continue
            try:
                reply = Reply(read_report(message.content), message.content)
            except (KeyError, TypeError, ValueError) as error:
                self.warn(f"a node answered what cannot be read: {str(error)[:LONGEST]}")
                continue
            replies[message.metadata.src_node_id] = reply
        return replies

    def _admit(self, number: int, reply: Reply) -> None:
        """Takes a node in, or leaves it out and says why."""
        name, reason = reply.report.name[:LONGEST], reply.report.error[:LONGEST]
        if not reason:
            try:
                member = read_member(reply.report)
            except ValueError as error:
                self._refuse(number, name, f"its introduction cannot be read: {error}")
                return
            reason = self._objection(member)
        if reason:
            self._refuse(number, name, reason)
            return
        self.members.setdefault(member.name, member)
        self.present[member.name] = number

    def _refuse(self, number: int, name: str, reason: str) -> None:
        self.strangers[number] = name, reason
        self.warn(f"{name} cannot take part: {reason}")

    def _objection(self, new: Member) -> str:
        """Why a node may not take part, if it may not."""
        if new.version.split(".")[:2] != __version__.split(".")[:2]:
            theirs = new.version or "older"
            return f"its fedpn is {theirs}, and here it is {__version__}: install the same on both"
        if new.name in self.present or new.name in self.odd:
            return TWIN
        known = self.members.get(new.name)
        if known and known.rows != new.rows:
            return f"it has {new.rows} training rows now, and had {known.rows}"
        if self.form is not None and new.form != self.form:
            return difference(new, self.form, [n for n in self.members if n != new.name])
        for old in self.members.values():
            same = new.partition is not None and old.partition == new.partition
            if same and old.name != new.name:
                return f"its partition {new.partition} is that of {old.name}"
        return too_many_rows(new, [m for n, m in self.members.items() if n != new.name])

    def _agree(self) -> None:
        """Before a run begins: those take part whose form the config names, or most have.

        Who differs is named at once, and waits at the door: more nodes may make its form that of
        most.
        """
        everybody = self.members | {name: member for name, (member, _) in self.odd.items()}
        numbers = self.present | {name: number for name, (_, number) in self.odd.items()}
        form, before = common_form(everybody.values(), self.config), set(self.odd)
        here = [name for name, member in everybody.items() if member.form == form]
        self.members = {name: everybody[name] for name in here}
        self.present = {name: i for name, i in numbers.items() if name in self.members}
        self.odd = {n: (everybody[n], i) for n, i in numbers.items() if n not in self.members}
        for name, (member, _) in self.odd.items():
            if name not in before:
                wanted = self.config.data
                goal = form or Form(member.shape, wanted.classes, wanted.features)
                self.warn(f"{name} cannot take part: {difference(member, goal, here)}")


def _times(count: int) -> str:
    """
    >>> _times(1), _times(2)
    ('once', '2 times')
    """
    return "once" if count == 1 else f"{count} times"


def _place(member: Member) -> tuple[int, str]:
    """Orders nodes by partition, and those with data of their own by name."""
    return (-1 if member.partition is None else member.partition), member.name
