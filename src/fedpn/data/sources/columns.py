"""Columns as files and frames hold them -> numbers, or cells where not all of them are numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedpn.data.cells import CELL, Array, Kind, of_numbers
from fedpn.data.recipe import LARGEST, Style
from fedpn.data.sources.writing import NUMBERS, is_both, read, style_of

DECIMALS = {"auto": "", "point": ".", "comma": ","}
DATES = {"auto": "", "day first": "yes", "month first": "no"}


@dataclass(frozen=True)
class Ways:
    """How columns are to be read."""

    decimal: str = "auto"  # one of DECIMALS
    dates: str = "auto"  # one of DATES
    categories: tuple[str, ...] = ()  # columns of numbers that are names
    known: Mapping[str, Style] = field(default_factory=dict)  # how a column was written before

    @property
    def style(self) -> Style:
        return Style(DECIMALS[self.decimal], DATES[self.dates])


class Columns(NamedTuple):
    """Columns of a table as one array."""

    x: Array  # float32 [N, F], or cells [N, F]
    words: dict[float, str]  # what fingerprints of texts stand for
    styles: dict[str, Style]
    remarks: tuple[str, ...] = ()


class Distinct(NamedTuple):
    """A column as its different texts, and which of them each row has."""

    texts: list[str]
    places: Array  # [N]


def read_columns(
    columns: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    ways: Ways = Ways(),
) -> Columns:
    """Reads columns, in the order of these names."""
    quick = {name: _typed(columns[name]) for name in names}
    slow = {name: _distinct(columns[name]) for name, cells in quick.items() if cells is None}
    styles = _styles(slow, ways)
    if any(style.decimal == "," for style in styles.values()):
        for name, cells in quick.items():
            if cells is not None and _has_thousands(columns[name]):
                slow[name], quick[name] = _distinct(columns[name]), None
        styles = _styles(slow, ways)
    ready = [cells for cells in quick.values() if cells is not None]
    if not slow and not ways.categories and all((c["kind"] == Kind.NUMBER).all() for c in ready):
        return Columns(
            np.stack([c["value"] for c in ready], 1, dtype=np.float32, casting="same_kind"), {}, {}
        )
    words: dict[float, str] = {}
    found = np.empty((len(names), len(next(iter(columns.values())))), CELL)
    for place, name in enumerate(names):
        cells = quick[name]
        if cells is None:
            cells = _slowly(slow[name], styles[name], words)
        if name in ways.categories:
            words |= {v: f"{v:g}" for v in np.unique(cells["value"][cells["kind"] == Kind.NUMBER])}
        found[place] = cells
    return Columns(found.T, words, styles, _doubts(slow, styles))


def _typed(column: Sequence[Any]) -> Array | None:
    """Cells of a column that has one type, or whose texts are all plain numbers; else None."""
    array = column if isinstance(column, np.ndarray) else None
    if array is None or array.dtype.kind in "OUS":
        try:
            array = np.array(column, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return None
        return of_numbers(array) if (np.abs(array) <= LARGEST).all() else None
    if array.dtype.kind == "b":
        cells = of_numbers(array)
        cells["kind"] = np.where(array, Kind.YES, Kind.NO)
        return cells
    if array.dtype.kind in "Mm":
        days = array.astype("M8[us]" if array.dtype.kind == "M" else "m8[us]").astype(np.int64)
        cells = of_numbers(np.where(np.isnat(array), np.nan, days / 86_400_000_000))
        there = cells["kind"] == Kind.NUMBER
        cells["kind"][there] = Kind.DATE if array.dtype.kind == "M" else Kind.NUMBER
        return cells
    if array.dtype.kind in "iuf":
        with np.errstate(invalid="ignore"):
            held = np.abs(array.astype(np.float64)) <= LARGEST
        return of_numbers(array) if (held | np.isnan(array)).all() else None
    return None


def _distinct(column: Sequence[Any]) -> Distinct:
    seen: dict[str, int] = {}
    values = ("" if value is None else str(value) for value in column)
    places = np.fromiter((seen.setdefault(text, len(seen)) for text in values), np.int64)
    return Distinct(list(seen), places)


def _styles(slow: Mapping[str, Distinct], ways: Ways) -> dict[str, Style]:
    """How each column is written: as is asked for, as it shows, as others show, as it was."""
    asked = ways.style
    found = {name: style_of(text.strip() for text in d.texts) for name, d in slow.items()}
    signs = {style.decimal for style in found.values()} - {""}
    common = signs.pop() if len(signs) == 1 else ""
    styles = {}
    for name, (decimal, day_first) in found.items():
        before = ways.known.get(name, Style())
        styles[name] = Style(
            asked.decimal or decimal or before.decimal or common,
            asked.day_first or day_first or before.day_first,
        )
    return styles


def _has_thousands(column: Sequence[Any]) -> bool:
    """Whether texts that look like numbers with points are such with thousands."""
    texts = [text.strip() for text in column if isinstance(text, str)]
    dotted = [text for text in texts if "." in text]
    return bool(dotted) and all(NUMBERS[","].fullmatch(text) for text in dotted)


def _slowly(distinct: Distinct, style: Style, words: dict[float, str]) -> Array:
    """Reads each different text once."""
    cells = np.array([read(text, style) for text in distinct.texts], CELL)
    spelled = np.isin(cells["kind"], (Kind.TEXT, Kind.YES, Kind.NO))
    for place in np.flatnonzero(spelled):
        words.setdefault(float(cells["value"][place]), distinct.texts[place].strip())
    if spelled.any():  # numbers among names are names too, where they turn out to be categories
        for place in np.flatnonzero(cells["kind"] == Kind.NUMBER)[:1000]:
            words.setdefault(float(cells["value"][place]), distinct.texts[place].strip())
    return cells[distinct.places]


def _doubts(slow: Mapping[str, Distinct], styles: Mapping[str, Style]) -> tuple[str, ...]:
    """What could have been read in another way, and how it was."""
    remarks = []
    taken = {
        "decimal": ("a decimal comma or one for thousands", "thousands", "data.decimal=comma"),
        "dates": ("the day first or the month", "the day", "data.dates='month first'"),
    }
    for name, distinct in slow.items():
        for what in is_both([text.strip() for text in distinct.texts], styles[name]):
            either, chosen, option = taken[what]
            remarks.append(
                f"{name!r} may have {either}, which nothing tells: {chosen} is taken "
                f'(else --set "{option}")'
            )
    return tuple(remarks)
