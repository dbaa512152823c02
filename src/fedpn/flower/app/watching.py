"""A run's status file on Flower: the round, the nodes, what they cost, what went wrong."""

import os
import time
from itertools import count
from pathlib import Path
from typing import Any

from fedpn import __version__
from fedpn.federated.listener import Listener
from fedpn.flower.app.messages import Messages
from fedpn.flower.app.terms import Terms
from fedpn.flower.status import FILE, Warnings, write_status


class Watching(Listener):
    """Hears of a run, passes it on, and keeps `status.json` up to date."""

    def __init__(self, inner: Listener, terms: Terms, out: Path | None = None) -> None:
        self.inner, self.terms = inner, terms
        self.out = out or terms.out  # until the run is whole, perhaps
        self.started = time.time()
        self.messages: Messages | None = None
        self.warnings = Warnings()
        self.facts: dict[str, Any] = {"phase": "wait", "round": 0, "rounds": terms.config.rounds}

    def phase(self, name: str) -> None:
        self.facts["phase"] = name
        self.facts.pop("left", None)
        self.write()
        self.inner.phase(name)

    def progress(self, stage: str, done: int, of: int, **facts: float | None) -> None:
        self.facts["phase"] = stage
        if stage == "federate":
            self.facts |= {"round": done, "rounds": of, "loss": facts.get("loss")}
        self.write()
        self.inner.progress(stage, done, of, **facts)

    def round(self, number: int, numbers: dict[str, float]) -> None:
        left = numbers.get("seconds", 0.0) * (self.facts["rounds"] - number)
        self.facts["left"] = left
        self.write()
        self.inner.round(number, numbers)

    def say(self, text: str) -> None:
        self.warnings.add(text)
        self.write()
        self.inner.say(text)

    def stopping(self) -> bool:
        return self.inner.stopping()

    def over(self, how: str, figures: dict[str, Any] | None = None) -> None:
        """The run has ended: finished, failed for a reason, or stopped."""
        self.write(ended=how, figures=figures)

    def write(self, **more: Any) -> None:
        config, order = self.terms.config, self.messages and self.messages.roster.order
        write_status(
            self.out / FILE,
            {
                "role": "server",
                "version": __version__,
                "run": order.run if order else None,
                "name": self.terms.out.name,
                "dataset": config.dataset,
                "algorithm": config.algorithm,
                "secure": self.terms.secure,
                "pid": os.getpid(),
                "started": self.started,
                "updated": time.time(),
                "ended": None,
                "nodes": nodes_of(self.messages) if self.messages else [],
                "warnings": self.warnings.tree(),
                **self.facts,
                **more,
            },
        )


def nodes_of(messages: Messages) -> list[dict[str, Any]]:
    """What is known of each node; of those at the door why they are not let in."""
    roster, costs = messages.roster, messages.costs
    found = []
    for name, member in roster.members.items():
        number = roster.present.get(name)
        found.append(
            {
                "name": name,
                "state": "away" if number is None else "here",
                "rows": member.rows,
                "round": messages.bases.get(name, 0),
                "loss": messages.losses.get(name),
                "seen": costs.seen(name),
                "seconds": costs.seconds(name),
                "sent": costs.of(name)[0],
                "received": costs.of(name)[1],
                "why": messages.refusals.get(name, ""),
            }
        )
    left = [*roster.strangers.values(), *((name, "its form differs") for name in roster.odd)]
    taken = set(roster.members)
    for name, why in left:
        found.append({"name": _told_apart(name, taken), "state": "left out", "why": why})
    return found


def _told_apart(name: str, taken: set[str]) -> str:
    """A name that nobody has yet: those who are left out may say any.

    >>> taken = {"anna"}
    >>> _told_apart("anna", taken), _told_apart("anna", taken)
    ('anna (2)', 'anna (3)')
    """
    free = (n for i in count(1) if (n := name if i == 1 else f"{name} ({i})") not in taken)
    taken.add(found := next(free))
    return found
