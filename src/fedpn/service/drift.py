"""Drift: is what becomes of inputs as it was of calibration rows?

A client's calibration rows are few, so each share has the most that they allow for; of inputs there
are many, and somebody looks all the time, so evidence is gathered that may be looked at at any time
(`evidence`). Both errors together raise a false alarm for at most 5 % of clients' versions, ever.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fedpn.routing.outcomes import BY_LABEL, Outcome, Source
from fedpn.routing.rule import EVEN
from fedpn.service.decisions import Decisions
from fedpn.service.evidence import Evidence, upper_bound
from fedpn.serving.bundle import Bundle

WINDOW = 500  # decisions that are shown
PART = 25  # decisions that are one point of the chart
FEWEST = 30  # decisions before shares say much
SAVED = 2.0  # seconds between writes of what was seen
# How often, in all eternity, each share may raise a false alarm; 5 % together.
CHANCES = {"strangers": 0.01, "abstentions": 0.01, "foreign": 0.03}
CALIBRATION = 0.9  # the part of it that calibration's own error takes: it cannot be gathered
WORDS = {"strangers": "strangers", "abstentions": "abstentions", "foreign": "foreign inputs"}

Tree = dict[str, Any]


class Seen(NamedTuple):
    """What became of inputs."""

    outcomes: Sequence[Outcome]
    foreignness: Sequence[float]  # as the rule has it

    def marks(self, limit: float) -> dict[str, list[bool]]:
        """Which inputs are of each kind; `limit`: above it one is foreign."""
        strange = [outcome is Outcome.STRANGER for outcome in self.outcomes]
        nobody = [outcome.source is Source.NOBODY for outcome in self.outcomes]
        far = [score > limit for score in self.foreignness]
        return {
            "strangers": strange,
            "abstentions": [n and not s for n, s in zip(nobody, strange, strict=True)],
            "foreign": [f and not s for f, s in zip(far, strange, strict=True)],
        }


class Watch:
    """What one version of a client's models has seen; a few numbers, however many inputs come."""

    def __init__(self, bundle: Bundle, state: Tree | None = None) -> None:
        *counts, self.limit = bundle.standards.seen.tolist()
        rows, *marked = (int(n) for n in counts)
        self.expected: dict[str, float] = {}
        self.evidence: dict[str, Evidence] = {}
        for (name, chance), count in zip(CHANCES.items(), marked, strict=True):
            limit = upper_bound(count, rows, CALIBRATION * chance)
            self.expected[name] = count / rows if rows else 0.0
            known = (state or {}).get(name)
            self.evidence[name] = Evidence.of_state(limit, known) if known else Evidence(limit)

    def see(self, seen: Seen, share: float | None = None) -> None:
        """Takes inputs into account; whether somebody answers, only where no caller told the share
        of own inputs, by which that goes."""
        for name, marks in seen.marks(self.limit).items():
            if name != "abstentions" or share in (None, EVEN):
                self.evidence[name].see(marks)

    def alarms(self) -> list[str]:
        """The shares that are greater than calibration allows for."""
        return [
            name
            for name, seen in self.evidence.items()
            if seen.value >= 1 / ((1 - CALIBRATION) * CHANCES[name])
        ]

    def state(self) -> Tree:
        return {name: seen.state() for name, seen in self.evidence.items()}


class Watches:
    """All that is watched, by client and version; written beside the decisions now and then."""

    def __init__(self, decisions: Decisions | None) -> None:
        self.decisions, self._lock = decisions, threading.Lock()
        self._watches: dict[tuple[str, str], Watch] = {}
        self._changed: set[tuple[str, str]] = set()
        self._saved = time.monotonic()

    def of(self, bundle: Bundle) -> Watch:
        key = (bundle.client, bundle.version)
        if key not in self._watches:
            state = self.decisions.read_watch(*key) if self.decisions else None
            with self._lock:
                self._watches.setdefault(key, Watch(bundle, state))
        return self._watches[key]

    def see(self, bundle: Bundle, seen: Seen, share: float | None) -> None:
        watch = self.of(bundle)
        with self._lock:
            watch.see(seen, share)
            self._changed.add((bundle.client, bundle.version))

    def save(self, at_once: bool) -> None:
        """Writes what was seen since; what a kill costs says nothing of the rest."""
        if self.decisions is None or (not at_once and time.monotonic() < self._saved + SAVED):
            return
        self._saved = time.monotonic()
        for key in list(self._changed):
            with self._lock:
                state = self._watches[key].state()
            self.decisions.keep_watch(*key, state)
            self._changed.discard(key)


def _seen_again(recent: Sequence[Tree], bundle: Bundle) -> Seen:
    """The same of decisions that were kept."""
    outcomes = [BY_LABEL[row["outcome"]] for row in recent]
    if bundle.rule is None or not recent:
        return Seen(outcomes, [0.0] * len(recent))
    shares = [row["own_share"] for row in recent]
    if len(bundle.standards.asked) or None in shares:  # promises go by an even share
        shares = [EVEN] * len(recent)
    epistemic = torch.tensor([row["epistemic"] for row in recent], dtype=torch.float64)
    return Seen(outcomes, bundle.rule.foreignness(epistemic, torch.tensor(shares)).tolist())


def drift(recent: Sequence[Tree], bundle: Bundle, watch: Watch | None = None) -> Tree:
    """The shares of the last inputs beside what calibration allows for; and how they went.

    Without a watch these inputs are all that was seen.
    """
    seen = _seen_again(recent, bundle)
    if watch is None:
        watch = Watch(bundle)
        watch.see(seen)
    marks = seen.marks(watch.limit)
    shares = {name: sum(column) / max(len(column), 1) for name, column in marks.items()}
    parts = [range(i, min(i + PART, len(recent))) for i in range(0, len(recent), PART)]
    return {
        "rows": len(recent),
        "fewest": FEWEST,
        **{
            name: {
                "share": share,
                "expected": watch.expected[name],
                "limit": watch.evidence[name].limit,
                "rows": watch.evidence[name].rows,
            }
            for name, share in shares.items()
        },
        "own_share": recent[-1]["own_share"] if recent else None,
        "alerts": [
            f"{100 * shares[name]:.0f} % {WORDS[name]} among the last {len(recent)} inputs: so far "
            f"more have come than calibration allows for, which is at most "
            f"{100 * watch.evidence[name].limit:.0f} %"
            for name in watch.alarms()
        ],
        "chart": [
            {
                "time": recent[part[-1]]["time"],
                **{
                    name: sum(column[i] for i in part) / len(part) for name, column in marks.items()
                },
                "own_share": recent[part[-1]]["own_share"],
            }
            for part in parts
        ],
    }
