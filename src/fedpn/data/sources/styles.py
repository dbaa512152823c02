"""How columns are written: what each client's cells show, and what is settled from it.

Styles are settled for a whole file, client by client, before the first cell is read. Where all
cells of a client's column can be read in two ways, these tell, the first that can: the setting, how
the column was written when the model was trained, the client's other columns, other clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.recipe import Style, Written
from fedpn.data.sources.guard import short, some
from fedpn.data.sources.shown import Mark, Owners, Shown
from fedpn.data.sources.writing import PIVOT, read_date, read_number

DECIMALS = {"auto": "", "point": ".", "comma": ","}
DATES = {"auto": "", "day first": "yes", "month first": "no"}
MOSTLY = 0.9  # cells that can be read in one way only settle a style if so many of them agree


@dataclass(frozen=True)
class Ways:
    """How columns are to be read."""

    decimal: str = "auto"  # one of DECIMALS
    dates: str = "auto"  # one of DATES
    categories: tuple[str, ...] = ()  # columns whose numbers are names
    known: Mapping[str, Style] = field(default_factory=dict)  # how a column was written before
    signed: tuple[str, ...] = ()  # columns in which "-" is a value
    keep: bool = False  # whether cells are wanted though all of them are numbers
    strict: bool = False  # whether a table is refused whose columns nothing settles
    newcomer: bool = False  # whether columns were written by other clients before


USUAL = Ways()


class Part(NamedTuple):
    """A part of a style, its two values, and what tells which of them it is."""

    field: str
    values: tuple[str, str]
    tells: tuple[Mark, Mark]
    open: Mark
    names: tuple[str, str]
    options: tuple[str, str]
    way: str

    def votes(self, shown: Shown, client: int) -> tuple[int, int]:
        """How many texts can be read in the first way only, and in the second."""
        first, second = (shown.of(client, mark) for mark in self.tells)
        # Points between day and month mean the day first, unless some have the month first.
        dots = 0 if second or self.field == "decimal" else shown.of(client, Mark.DOTS)
        return first + dots, second

    def example(self, shown: Shown, client: int, value: str) -> str:
        """A text that could be read in the other way than by this value; "" for none."""
        marks = [self.open]
        marks += [Mark.POINTS] * (value == ",")
        marks += [Mark.DOTS] * (self.field == "day_first" and shown.of(client, Mark.MONTH) > 0)
        return next((shown.such[client, m] for m in marks if (client, m) in shown.such), "")

    def readings(self, text: str) -> str:
        """Both readings, in words.

        >>> PARTS[1].readings("03/04/2024"), PARTS[0].readings("1,234")
        ('2024-04-03 or 2024-03-04', '1234 or 1.234')
        """
        if self.field == "decimal":
            numbers = (read_number(text, Style(value)) for value in self.values)
            return " or ".join(f"{number:.10g}" for number in numbers if number is not None)
        days = (read_date(text, Style("", value)) or 0 for value in self.values)
        return " or ".join(str(np.datetime64(int(day // 1), "D")) for day in days)

    def other(self, value: str) -> str:
        return self.values[value == self.values[0]]

    def name(self, value: str) -> str:
        return self.names[self.values.index(value)]


PARTS = (
    Part(
        "decimal",
        (".", ","),
        (Mark.POINT, Mark.COMMA),
        Mark.NUMBER,
        ("decimal points", "decimal commas"),
        ("data.decimal=point", "data.decimal=comma"),
        "write numbers as 1234.5",
    ),
    Part(
        "day_first",
        ("yes", "no"),
        (Mark.DAY, Mark.MONTH),
        Mark.DATE,
        ("the day first", "the month first"),
        ("data.dates='day first'", "data.dates='month first'"),
        "write dates as 2024-12-31",
    ),
)


class Answer(NamedTuple):
    """One part of a client's style of one column, and what told it."""

    value: str
    source: str  # asked, cells, known, columns, clients, nothing
    mixed: bool = False  # whether cells contradict each other
    changed: bool = False  # whether it was written otherwise before


class Settled(NamedTuple):
    """Styles by column, and what is to be said of them."""

    read: dict[str, list[Style]]  # by client
    kept: dict[str, Style]  # what later rows are held to
    remarks: list[str]


def settle(shown: Mapping[str, Shown], owners: Owners, ways: Ways) -> Settled:
    """Settle how each client writes each column; refuse, or tell of, what nothing settles."""
    asked = (DECIMALS[ways.decimal], DATES[ways.dates])
    answers = [
        _answers(part, shown, owners, ways, value) for part, value in zip(PARTS, asked, strict=True)
    ]
    read, kept, remarks = {}, {}, []
    for name, column in shown.items():
        decimals, dates = answers[0][name], answers[1][name]
        read[name] = [Style(a.value, b.value) for a, b in zip(decimals, dates, strict=True)]
        kept[name] = _kept(column, (decimals, dates), owners, ways.known.get(name, Style()))
        for part, found in zip(PARTS, (decimals, dates), strict=True):
            if ways.strict:
                _refuse(part, name, column, found[0])
            remarks += _remarks(part, name, column, found, owners)
        remarks += _short_years(name, column, owners)
    return Settled(read, kept, remarks)


def _answers(
    part: Part, shown: Mapping[str, Shown], owners: Owners, ways: Ways, asked: str
) -> dict[str, list[Answer]]:
    """Each client's value in each column."""
    clients = range(len(owners.names))
    if asked:
        return {name: [Answer(asked, "asked")] * len(clients) for name in shown}
    known = {name: getattr(style, part.field) for name, style in ways.known.items()}
    votes = {name: [part.votes(column, c) for c in clients] for name, column in shown.items()}
    signs = [set(known.values()) - {""} for _ in clients]
    for column in votes.values():
        for c, told in enumerate(column):
            signs[c] |= {_most(part, told)} - {""}
    answers: dict[str, list[Answer]] = {}
    for name, column in votes.items():
        before = known.get(name, "")
        most = _most(part, (sum(v[0] for v in column), sum(v[1] for v in column)))
        answers[name] = []
        for c, told in enumerate(column):
            mine, mixed = _most(part, told), max(told) < MOSTLY * sum(told)
            common = next(iter(signs[c])) if len(signs[c]) == 1 else ""
            sources = {
                "cells": mine,
                "clients" if ways.newcomer else "known": before,
                "columns": common,
                "others": most,
                "nothing": part.values[0],
            }
            source, value = next((s, v) for s, v in sources.items() if v)
            changed = bool(before and mine) and before != mine and not ways.newcomer
            answers[name].append(Answer(value, source, mixed, changed))
    return answers


def _most(part: Part, votes: tuple[int, int]) -> str:
    return "" if votes[0] == votes[1] else part.values[votes[1] > votes[0]]


def _kept(
    shown: Shown, answers: tuple[list[Answer], list[Answer]], owners: Owners, known: Style
) -> Style:
    """A column's style for later rows: only what was there to be read in one way or the other."""
    found = []
    for client, (sign, day) in enumerate(zip(*answers, strict=True)):
        number = sign.source != "nothing" or shown.of(client, Mark.NUMBER)
        dated = day.source == "asked" or shown.of(client, Mark.DAY, Mark.MONTH, Mark.DATE)
        found.append(
            (sign.value if number else known.decimal, day.value if dated else known.day_first)
        )
    columns = [[value for value in column if value] for column in zip(*found, strict=True)]
    decimal, day_first = (max(sorted(set(c)), key=c.count, default="") for c in columns)
    own = (Written(owners.names[c], a or decimal, b) for c, (a, b) in enumerate(found))
    others = (way for way in own if (way.decimal, way.day_first) != (decimal, day_first))
    return Style(decimal, day_first, tuple(others))


def _refuse(part: Part, name: str, shown: Shown, answer: Answer) -> None:
    """Refuse a table whose cells nothing settles, or that contradicts what is known."""
    text = part.example(shown, 0, answer.value)
    if not text or not (answer.changed or answer.mixed or answer.source in ("nothing", "others")):
        return
    here, there = (part.name(value) for value in (answer.value, part.other(answer.value)))
    why = "nothing tells which, neither its other cells nor what the model was trained on"
    if answer.mixed:
        why = "its other cells show both ways"
    elif answer.changed:
        why = f"its other cells have {here}, and the model knows {there}"
    raise UserError(
        f"{short(text)!r} in the column {short(name)!r} is {part.readings(text)}: {why}; {part.way}"
    )


def _remarks(
    part: Part, name: str, shown: Shown, answers: Sequence[Answer], owners: Owners
) -> list[str]:
    """What is a guess, and what is written otherwise than before or by other clients."""
    told = []
    guesses: dict[tuple[str, str], list[int]] = {}
    sides: dict[str, list[int]] = {}
    changed = [client for client, answer in enumerate(answers) if answer.changed]
    for client, answer in enumerate(answers):
        if answer.source == "cells":
            sides.setdefault(answer.value, []).append(client)
        why = WHY["mixed" if answer.mixed else answer.source]
        if why and part.example(shown, client, answer.value):
            guesses.setdefault((answer.value, why), []).append(client)
    for (value, why), clients in guesses.items():
        text, other = part.example(shown, clients[0], value), part.other(value)
        told.append(
            f"{short(name)!r}{_of(owners, clients)}: {short(text)!r} is {part.readings(text)}, and "
            f"{why}: {part.name(value)} taken (else {part.way}, or --set "
            f'"{part.options[part.values.index(other)]}")'
        )
    if changed:
        now = part.name(answers[changed[0]].value)
        told.append(f"{short(name)!r}{_of(owners, changed)}: {now}, which is not as before")
    if len(sides) > 1:
        each = (f"{part.name(value)}{_of(owners, clients)}" for value, clients in sides.items())
        told.append(f"{short(name)!r}: {', '.join(each)}; each is read as its own cells show")
    return told


WHY = {
    "asked": "",
    "cells": "",
    "known": "",
    "columns": "only other columns tell",
    "clients": "only other clients tell",
    "others": "only other clients tell",
    "nothing": "nothing tells",
    "mixed": "other cells show both ways",
}


def _short_years(name: str, shown: Shown, owners: Owners) -> list[str]:
    clients = [client for client, mark in shown.such if mark is Mark.YEAR]
    if not clients:
        return []
    return [
        f"{short(name)!r}{_of(owners, sorted(clients))}: years of two digits, such as "
        f"{shown.such[clients[0], Mark.YEAR]!r}, are taken as 19{PIVOT} to 20{PIVOT - 1} (as Excel "
        "does; else write four digits)"
    ]


def _of(owners: Owners, clients: Sequence[int]) -> str:
    """Whose, where clients have names."""
    return f" of {some([owners.names[c] for c in clients])}" if any(owners.names) else ""
