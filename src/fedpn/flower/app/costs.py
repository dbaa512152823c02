"""What a federation costs: bytes to and from each node, under all numbers that it ever had."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedpn.flower.app.roster import Roster

Bytes = tuple[int, int]  # sent to a node, received from it


class Costs:
    """Bytes by the names of nodes."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.numbers: dict[str, int] = {}  # the last under which a node was there
        self.passed: dict[str, Counter[str]] = {}  # under those before

    def of(self, name: str) -> Bytes:
        """What was sent to a node and received from it."""
        number, post = self.roster.present.get(name), self.roster.post
        last = self.numbers.get(name)
        if number is not None and last != number:
            if last is not None:
                kept = self.passed.setdefault(name, Counter())
                kept.update({"sent": post.sent[last], "received": post.received[last]})
            self.numbers[name] = last = number
        old = self.passed.get(name, Counter())
        now = (0, 0) if last is None else (post.sent[last], post.received[last])
        return old["sent"] + now[0], old["received"] + now[1]

    def seconds(self, name: str) -> float | None:
        """How long a node's last reply took."""
        return self.roster.post.seconds.get(self.numbers.get(name, -1))

    def seen(self, name: str) -> float | None:
        """When a node last said something."""
        return self.roster.post.seen.get(self.numbers.get(name, -1))

    def now(self, names: Iterable[str]) -> dict[str, Bytes]:
        return {name: self.of(name) for name in names}

    def since(self, before: Mapping[str, Bytes], names: Iterable[str]) -> dict[str, Any]:
        """What passed since then, in all and by node."""
        nodes: dict[str, dict[str, Any]] = {}
        for name in names:
            (sent, received), (old_sent, old_received) = self.of(name), before.get(name, (0, 0))
            passed = {"sent": sent - old_sent, "received": received - old_received}
            nodes[name] = {**passed, "seconds": self.seconds(name)}
        total = {kind: sum(node[kind] for node in nodes.values()) for kind in ("sent", "received")}
        return {**total, "nodes": nodes}
