"""The rounds of a finished run, read and checked: loss, who was left out, bytes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpn.reporting.values import Value, read_json_lines


@dataclass(frozen=True)
class Round:
    """What was kept of one round; bytes are None in older runs."""

    number: int
    loss: float | None
    accuracy: float | None
    dropped: tuple[int, ...] = ()  # clients that vanished before they could answer
    refused: tuple[int, ...] = ()  # clients whose answers did not count
    sent: int | None = None
    received: int | None = None


def read_history(run: Path) -> list[Round]:
    """The rounds of a run."""
    return [
        Round(
            line["round"].whole(),
            line["loss"].optional(Value.number),
            line["accuracy"].optional(Value.number),
            _clients(line["dropped"]),
            _clients(line["refused"]),
            line["sent"].optional(_bytes),
            line["received"].optional(_bytes),
        )
        for line in read_json_lines(run / "history.jsonl")
    ]


def _bytes(value: Value) -> int:
    return value.whole(below=2**63)


def _clients(value: Value) -> tuple[int, ...]:
    return tuple(item.whole() for item in value.optional(Value.items) or [])


def left_out(history: Sequence[Round]) -> list[tuple[int, int]]:
    """Clients that did not count in some rounds, and in how many; the most often first.

    >>> left_out([Round(1, 0.0, None, dropped=(2,)), Round(2, 0.0, None, (2,), (0,))])
    [(2, 2), (0, 1)]
    """
    times = Counter(client for r in history for client in {*r.dropped, *r.refused})
    return sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))


def traffic(history: Sequence[Round]) -> tuple[int, int] | None:
    """Bytes that the server sent and received in all rounds; None where nobody counted.

    >>> traffic([Round(1, None, None, sent=3, received=2), Round(2, None, None, sent=4)])
    (7, 2)
    """
    if all(r.sent is None and r.received is None for r in history):
        return None
    return sum(r.sent or 0 for r in history), sum(r.received or 0 for r in history)


def each_round(history: Sequence[Round]) -> tuple[int | None, int | None]:
    """Bytes that every round sent and received, where that is the same in all of them.

    >>> each_round([Round(1, None, None, sent=3, received=2), Round(2, None, None, sent=3)])
    (3, None)
    """
    sent, received = {r.sent for r in history}, {r.received for r in history}
    return sent.pop() if len(sent) == 1 else None, received.pop() if len(received) == 1 else None
