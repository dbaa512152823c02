"""Columns as files and frames hold them -> numbers, or cells where not all of them are numbers.

The same cell is read in the same way wherever it comes from: how a column is written is settled
once, kept with what was learned from it, and goes before what few new rows seem to show.
"""

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedpn.data.cells import CELL, Array, Kind, fingerprint, of_numbers
from fedpn.data.recipe import LARGEST, Style
from fedpn.data.sources.values import is_number, is_text, number_as_text, read_value
from fedpn.data.sources.writing import is_both, style_of

DECIMALS = {"auto": "", "point": ".", "comma": ","}
DATES = {"auto": "", "day first": "yes", "month first": "no"}
SIGNS = {"+", "++", "+++", "(+)"}  # beside these, "-" is a value
TRUTH = {True: (fingerprint("true"), Kind.YES), False: (fingerprint("false"), Kind.NO)}


@dataclass(frozen=True)
class Ways:
    """How columns are to be read."""

    decimal: str = "auto"  # one of DECIMALS
    dates: str = "auto"  # one of DATES
    categories: tuple[str, ...] = ()  # columns whose numbers are names
    known: Mapping[str, Style] = field(default_factory=dict)  # how a column was written before
    signed: tuple[str, ...] = ()  # columns in which "-" is a value
    keep: bool = False  # whether cells are wanted though all of them are numbers


class Columns(NamedTuple):
    """Columns of a table as one array."""

    x: Array  # float32 [N, F], or cells [N, F]
    words: dict[float, str]  # what fingerprints of texts stand for
    styles: dict[str, Style]  # as they were read
    remarks: tuple[str, ...] = ()


class Distinct(NamedTuple):
    """A column as its different values, and which of them each row has."""

    values: list[Any]
    places: Array  # [N]

    @property
    def texts(self) -> list[str]:
        return [value.strip() for value in self.values if is_text(value)]


def read_columns(
    columns: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    ways: Ways = Ways(),
) -> Columns:
    """Reads columns, in the order of these names."""
    named = set(ways.categories)
    quick = {name: None if name in named else _typed(columns[name]) for name in names}
    slow = {name: _distinct(columns[name]) for name, cells in quick.items() if cells is None}
    shown = {name: style_of(d.texts) for name, d in slow.items() if name not in named}
    if _has_commas(shown, ways):  # then a point may part thousands
        for name in [n for n in names if quick[n] is not None and _has_points(columns[n])]:
            slow[name] = _distinct(columns[name])
            shown[name], quick[name] = style_of(slow[name].texts), None
    styles, remarks = _styles(names, shown, ways)
    if not slow and not ways.keep:
        ready = [cells for cells in quick.values() if cells is not None]
        if all((cells["kind"] == Kind.NUMBER).all() for cells in ready):
            x = np.stack([c["value"] for c in ready], 1, dtype=np.float32, casting="same_kind")
            return Columns(x, {}, styles)
    words: dict[float, str] = {}
    found = np.empty((len(names), len(next(iter(columns.values())))), CELL)
    for place, name in enumerate(names):
        cells = quick[name]
        if cells is None:
            signed = name in ways.signed or not SIGNS.isdisjoint(slow[name].texts)
            cells = _slowly(slow[name], styles[name], words, (signed, name in named))
        found[place] = cells
    told = (*remarks, *_doubts({n: slow[n] for n in shown}, shown, styles, ways))
    return Columns(found.T, words, styles, told)


def _typed(column: Sequence[Any]) -> Array | None:
    """Cells of a column that has one type, or whose texts are all plain numbers; else None."""
    array = column if isinstance(column, np.ndarray) else None
    if array is None or array.dtype.kind in "OUS":
        kinds = set(map(type, column))
        if kinds == {str}:
            if "_" in "".join(column):  # Python would read 1_000
                return None
        elif {bool, np.bool_} & kinds or not all(issubclass(k, numbers.Real) for k in kinds):
            return None
        try:
            array = np.array(column, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return None
        return of_numbers(array) if (np.abs(array) <= LARGEST).all() else None
    if array.dtype.kind == "b":
        cells = np.empty(array.shape, CELL)
        cells[array], cells[~array] = TRUTH[True], TRUTH[False]
        return cells
    if array.dtype.kind in "Mm":
        days = array.astype(f"{array.dtype.kind}8[us]").astype(np.int64) / 86_400_000_000
        cells = of_numbers(np.where(np.isnat(array), np.nan, days))
        there = cells["kind"] == Kind.NUMBER
        cells["kind"][there] = Kind.DATE if array.dtype.kind == "M" else Kind.NUMBER
        return cells
    if array.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            held = np.abs(array.astype(np.float64)) <= LARGEST
        return of_numbers(array) if (held | np.isnan(array)).all() else None
    return None


def _distinct(column: Sequence[Any]) -> Distinct:
    """Told apart by type as well: 1, True and "1" are three things."""
    seen: dict[Any, int] = {}
    values: list[Any] = []
    places = []
    for value in column:
        key = value if is_text(value) else (type(value), str(value))
        if key not in seen:
            seen[key] = len(values)
            values.append(value)
        places.append(seen[key])
    return Distinct(values, np.array(places, np.int64))


def _has_commas(shown: Mapping[str, Style], ways: Ways) -> bool:
    styles = [*shown.values(), *ways.known.values(), Style(DECIMALS[ways.decimal])]
    return any(style.decimal == "," for style in styles)


def _has_points(column: Sequence[Any]) -> bool:
    return set(map(type, column)) == {str} and "." in "".join(column)


def _styles(
    names: Sequence[str], shown: Mapping[str, Style], ways: Ways
) -> tuple[dict[str, Style], list[str]]:
    """How each column is written: as is asked for, as it shows, as it was, as others show."""
    signs = {style.decimal for style in shown.values()} - {""}
    common = signs.pop() if len(signs) == 1 else ""
    decimal, dates = DECIMALS[ways.decimal], DATES[ways.dates]
    styles, remarks = {}, []
    for name in names:
        now, before = shown.get(name, Style()), ways.known.get(name, Style())
        styles[name] = Style(
            decimal or now.decimal or before.decimal or common or ".",
            dates or now.day_first or before.day_first or "yes",
        )
        for what, old, new in zip(("numbers", "dates"), before, styles[name], strict=True):
            if old and old != new:
                remarks.append(f"the {what} of {name!r} are written in another way than before")
    return styles, remarks


def _slowly(
    distinct: Distinct, style: Style, words: dict[float, str], how: tuple[bool, bool]
) -> Array:
    """Reads each different value once; `how` tells whether "-" is a value, and numbers names."""
    values = distinct.values
    signed, named = how
    if named:  # as they are written, whatever they look like
        values = [number_as_text(value) if is_number(value) else value for value in values]
    read = [read_value(value, style, signed, named) for value in values]
    cells = np.array(read, CELL)
    spelled = np.isin(cells["kind"], (Kind.TEXT, Kind.YES, Kind.NO))
    told = spelled | (spelled.any() & (cells["kind"] == Kind.NUMBER))
    for place in np.flatnonzero(told)[:100_000]:
        words.setdefault(float(cells["value"][place]), str(values[place]).strip())
    return cells[distinct.places]


def _doubts(
    slow: Mapping[str, Distinct],
    shown: Mapping[str, Style],
    styles: Mapping[str, Style],
    ways: Ways,
) -> list[str]:
    """What could have been read in another way, though nothing tells, and how it was."""
    remarks = []
    taken = {
        "decimal": ("a decimal comma or one for thousands", "thousands", "data.decimal=comma"),
        "dates": ("the day first or the month", "the day", "data.dates='month first'"),
    }
    for name, distinct in slow.items():
        before, now = ways.known.get(name, Style()), shown[name]
        comma = "," if styles[name].decimal == "," else ""
        sure = Style(
            DECIMALS[ways.decimal] or now.decimal or before.decimal or comma,
            DATES[ways.dates] or now.day_first or before.day_first,
        )
        # A point is a decimal one unless a column says otherwise.
        texts = [text for text in distinct.texts if "," in text or "/" in text or "-" in text]
        for what in is_both(texts, sure):
            either, chosen, option = taken[what]
            remarks.append(
                f"{name!r} may have {either}, which nothing tells: {chosen} is taken "
                f'(else --set "{option}")'
            )
    return remarks
