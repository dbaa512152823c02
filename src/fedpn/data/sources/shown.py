"""What cells show of how their columns are written, counted by client."""

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import NamedTuple

import numpy as np

from fedpn.data.cells import Array
from fedpn.data.recipe import Style
from fedpn.data.sources.writing import DAY_NAMED, NUMBERS, YEAR_LAST, read_date, read_number


class Mark(IntFlag):
    """What a cell shows of how its column is written."""

    POINT = 1  # a number whose decimal sign can only be a point
    COMMA = 2
    DAY = 4  # a date that can only have the day first
    MONTH = 8
    NUMBER = 16  # a number with a comma that can be read in both ways: 1,234
    POINTS = 32  # one with a point, which is a decimal one unless something tells otherwise
    DATE = 64  # a date that can be read in both ways: 3/4/2024
    DOTS = 128  # one with points, which has the day first unless something tells otherwise
    YEAR = 256  # a date whose year has two digits


def marks_of(text: str) -> Mark:
    """What a text shows, whatever the style of its column.

    >>> marks_of("1,234").name, marks_of("12,5").name, marks_of("3/4/2024").name
    ('NUMBER', 'COMMA', 'DATE')
    >>> marks_of("31.12.45") == Mark.DAY | Mark.YEAR, marks_of("icu").value
    (True, 0)
    """
    if not text or not any(digit in text for digit in "0123456789"):
        return Mark(0)
    point, comma = (NUMBERS[sign].fullmatch(text) is not None for sign in ".,")
    if point != comma:
        return Mark.POINT if point else Mark.COMMA
    if point:
        if read_number(text, Style(".")) == read_number(text, Style(",")):
            return Mark(0)
        return Mark.NUMBER if "," in text else Mark.POINTS
    day, month = (read_date(text, Style("", first)) for first in ("yes", "no"))
    if day is None:
        return Mark(0)
    found = YEAR_LAST.fullmatch(text)
    year = found[4] if found else _year_of_named(text)
    short = Mark.YEAR if len(year) == 2 else Mark(0)
    if found is None:
        return short
    if day != month:
        return short | (Mark.DOTS if found[2] == "." else Mark.DATE)
    if int(found[1]) == int(found[3]):
        return short
    return short | (Mark.DAY if int(found[1]) > 12 else Mark.MONTH)


def _year_of_named(text: str) -> str:
    found = DAY_NAMED.fullmatch(text)
    return found[3] if found else ""


MARKS = tuple(Mark)


class Owners(NamedTuple):
    """Whose the rows of a table are."""

    names: tuple[str, ...]
    places: Array  # [N], -1 for rows of nobody


NOBODY = Owners(("",), np.empty(0, np.int64))  # nobody is named: one writer


class Shown(NamedTuple):
    """What the cells of a column show, by client; that of parts of a file can be merged."""

    counts: Array  # [clients, marks] different texts
    such: Mapping[tuple[int, Mark], str]  # one of them

    def merge(self, later: "Shown") -> "Shown":
        return Shown(self.counts + later.counts, {**later.such, **self.such})

    def of(self, client: int, *marks: Mark) -> int:
        return int(sum(self.counts[client, MARKS.index(mark)] for mark in marks))


def show(texts: Sequence[str], places: Array, owners: Owners) -> Shown:
    """Look at the different texts of a column; `places` tells which of them each row has."""
    counts = np.zeros((len(owners.names), len(MARKS)), np.int64)
    marks = np.array([marks_of(text) for text in texts], np.int64)
    such: dict[tuple[int, Mark], str] = {}
    if len(owners.places):
        there = np.flatnonzero((owners.places >= 0) & (marks[places] > 0))
        pairs = np.unique(np.stack([owners.places[there], places[there]], 1), axis=0)
    else:
        there = np.flatnonzero(marks)
        pairs = np.stack([np.zeros_like(there), there], 1)
    for i, mark in enumerate(MARKS):
        clients, found = pairs[(marks[pairs[:, 1]] & mark) > 0].T
        np.add.at(counts[:, i], clients, 1)
        some_, first = np.unique(clients, return_index=True)
        such |= {(int(c), mark): texts[found[at]] for c, at in zip(some_, first, strict=True)}
    return Shown(counts, such)
