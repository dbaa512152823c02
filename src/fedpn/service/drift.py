"""Drift: are inputs, and what becomes of them, as calibration led one to expect?"""

import math
from collections.abc import Sequence
from typing import Any

from fedpn.routing.outcomes import Outcome
from fedpn.service.decisions import Share
from fedpn.serving.bundle import Bundle

WINDOW = 500  # decisions that are looked at
PART = 25  # decisions that are one point of the chart
FEWEST = 30  # decisions before anything is said
SIGMAS = 3.0

Tree = dict[str, Any]


def drift(recent: Sequence[Tree], bundle: Bundle) -> Tree:
    """Shares of strangers and of inputs that nobody answers, with a band; and how they went."""
    strange = [row["outcome"] == Outcome.STRANGER.label for row in recent]
    nobody = [
        row["source"] == "nobody" and not is_strange
        for row, is_strange in zip(recent, strange, strict=True)
    ]
    expected = expectations(bundle)
    shares = {
        "strangers": _share(strange, expected["strangers"]),
        "abstentions": _share(nobody, expected["abstentions"]),
    }
    enough = len(recent) >= FEWEST
    alerts = [
        f"{100 * found.share:.0f} % {name} among the last {found.rows} inputs, where at most "
        f"{100 * found.limit:.0f} % were to be expected"
        for name, found in shares.items()
        if enough and found.alarming
    ]
    parts = [range(i, min(i + PART, len(recent))) for i in range(0, len(recent), PART)]
    return {
        "rows": len(recent),
        "fewest": FEWEST,
        "strangers": shares["strangers"]._asdict(),
        "abstentions": shares["abstentions"]._asdict(),
        "own_share": recent[-1]["own_share"] if recent else None,
        "alerts": alerts,
        "chart": [
            {
                "time": recent[part[-1]]["time"],
                "strangers": sum(strange[i] for i in part) / len(part),
                "abstentions": sum(nobody[i] for i in part) / len(part),
                "own_share": recent[part[-1]]["own_share"],
            }
            for part in parts
        ],
    }


def expectations(bundle: Bundle) -> dict[str, float]:
    """The shares of inputs like the calibration rows that would be refused."""
    routing = bundle.about.routing
    promises = bundle.standards.promises
    abstain = routing.abstain if routing is not None else 0.0
    if promises is not None:
        abstain = 1 - min(promise.coverage for promise in promises)
    gate = routing.strangers if routing is not None and bundle.gate else 0.02
    return {"strangers": gate if bundle.gate else 0.0, "abstentions": abstain}


def _share(marks: Sequence[bool], expected: float) -> Share:
    rows = len(marks)
    share = sum(marks) / rows if rows else 0.0
    spread = math.sqrt(max(expected * (1 - expected), 1 / max(rows, 1)) / max(rows, 1))
    return Share(share, expected, min(expected + SIGMAS * spread, 1.0), rows)
