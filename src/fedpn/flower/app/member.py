"""What a node says of itself when it introduces itself, read with care, beside the others."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from fedpn.flower.app.records import Report
from fedpn.runs.config import Config

ROWS = 10**9  # of one node
WIDTH = 2**24  # numbers of one row
NAME, NOTE = 200, 2000  # characters of a name, of a note
NAMES = 2**16  # classes, columns
APART = 1000  # a node with so many times the rows of the others would be the federation


class Form(NamedTuple):
    """What all nodes of a federation must agree on."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]


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
    version: str = ""  # of its fedpn

    @property
    def form(self) -> Form:
        return Form(self.shape, self.classes, self.features)


def read_member(report: Report) -> Member:
    """Reads an introduction; what cannot be is a ValueError."""
    try:
        facts: dict[str, Any] = json.loads(report.facts)
        partition = facts["partition"]
        return Member(
            _text(report.name, NAME, least=1),
            _whole(facts["rows"], 1, ROWS, "rows"),
            _shape(facts["shape"]),
            _names(facts["classes"], 2, "classes"),
            _names(facts["features"], 0, "columns"),
            None if partition is None else _whole(partition, 0, ROWS, "partition"),
            _text(facts["note"], NOTE),
            facts.get("raw") is True,
            _text(facts.get("version", ""), NAME),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__} in what it tells") from None


def _whole(value: Any, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"its {what} are {_short(value)}, not from {low} to {high}")
    return value


def _text(value: Any, most: int, least: int = 0) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise ValueError(f"a text is {_short(value)}")
    return value


def _names(values: Any, least: int, what: str) -> tuple[str, ...]:
    names = tuple(_text(value, NAME, least=1) for value in list(values)[: NAMES + 1])
    if not least <= len(names) <= NAMES or len(set(names)) < len(names):
        raise ValueError(f"its {what} are {len(names)}, or some are named twice")
    return names


def _shape(values: Any) -> tuple[int, ...]:
    sides = tuple(_whole(value, 1, WIDTH, "sides") for value in list(values)[:4])
    width = 1
    for side in sides:
        width *= side
    if len(sides) not in (1, 3) or len(values) != len(sides) or width > WIDTH:
        raise ValueError(f"its rows have the shape {_short(values)}")
    return sides


def _short(value: Any) -> str:
    """A value in few words, whatever it is."""
    if isinstance(value, int) and abs(value) >= 10**15:
        return "a number of absurd size"
    return repr(value)[:60]


def common_form(members: Collection[Member], config: Config) -> Form | None:
    """The form that the config names, or that most nodes have; among equals, the first one's."""
    if not members:
        return None
    counts = Counter(member.form for member in members)
    wanted = config.data
    fitting = [
        form
        for form in counts
        if (not wanted.classes or form.classes == wanted.classes)
        and (not wanted.features or form.features == wanted.features)
    ]
    return max(fitting, key=lambda form: counts[form], default=None)


def difference(member: Member, form: Form, others: Sequence[str]) -> str:
    """How a node's form is another than that of the others."""
    them = f"those of {', '.join(others[:3])}" if others else "the run's"
    if member.shape != form.shape:
        return f"its rows have the shape {member.shape}, and {them} {form.shape}"
    kind, mine, theirs = "classes", member.classes, form.classes
    if mine == theirs:
        kind, mine, theirs = "columns", member.features, form.features
    way = "data.classes" if kind == "classes" else "data.features"
    if set(mine) == set(theirs):
        told = ", ".join(mine[:12])
        return f"its {kind} are {told}, in another order than {them}: name them in {way}"
    odd = ", ".join([*(n for n in mine if n not in theirs)][:8]) or "none"
    lacking = ", ".join([*(n for n in theirs if n not in mine)][:8]) or "none"
    return (
        f"its {kind} are {', '.join(mine[:12])}, and {them} are {', '.join(theirs[:12])}: it alone "
        f"has {odd}, and it lacks {lacking}; name all of them in {way}"
    )


def too_many_rows(member: Member, others: Collection[Member]) -> str:
    """Why a node's number of rows is not believed, where it is not."""
    if len(others) < 2:
        return ""
    usual = median(other.rows for other in others)
    if member.rows <= APART * usual:
        return ""
    return f"it says that it has {member.rows} training rows, and the others have about {usual:.0f}"
