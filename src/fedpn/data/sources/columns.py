"""Columns as files and frames hold them -> numbers, or cells where not all of them are numbers.

The same cell is read in the same way wherever it comes from: how a column is written is settled
once, kept with what was learned from it, and goes before what few new rows seem to show.
"""

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedpn.data.cells import CELL, Array, Kind, fingerprint, of_numbers
from fedpn.data.recipe import LARGEST, Style
from fedpn.data.sources.guard import short
from fedpn.data.sources.shown import MARKS, NOBODY, Mark, Owners, Shown, show
from fedpn.data.sources.styles import DECIMALS, USUAL, Settled, Ways, settle
from fedpn.data.sources.values import is_number, is_text, number_as_text, read_value

SIGNS = {"+", "++", "+++", "(+)"}  # beside these, "-" is a value
TRUTH = {True: (fingerprint("true"), Kind.YES), False: (fingerprint("false"), Kind.NO)}
EXACT, EXACT64 = 2**24, 2**53  # whole numbers up to them are told apart in 32 bits, in 64


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
        """The same; "" in the place of what is no text."""
        return [value.strip() if is_text(value) else "" for value in self.values]


class Look(NamedTuple):
    """A table before its cells are read: columns that read themselves, others, what these show."""

    quick: dict[str, Array | None]  # cells
    slow: dict[str, Distinct]
    shown: dict[str, Shown]


def look_at(
    columns: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    ways: Ways = USUAL,
    owners: Owners = NOBODY,
    file: Mapping[str, Shown] | None = None,
) -> Look:
    """Look at a table; where it is a part of a file, `file` is what all of that shows."""
    named = set(ways.categories)
    quick = {name: None if name in named else _typed(columns[name]) for name in names}
    slow = {name: _distinct(columns[name]) for name, cells in quick.items() if cells is None}
    shown = {n: show(d.texts, d.places, owners) for n, d in slow.items() if n not in named}
    if _has_commas(file or shown, ways):  # then a point may part thousands
        for name in [n for n in names if quick[n] is not None and _has_points(columns[n])]:
            slow[name], quick[name] = _distinct(columns[name]), None
            shown[name] = show(slow[name].texts, slow[name].places, owners)
    return Look(quick, slow, shown)


def look_through(
    tables: Callable[[], Iterable[Mapping[str, Sequence[Any]]]], names: Sequence[str], ways: Ways
) -> dict[str, Shown]:
    """Look at all parts of a file, again where commas are found that shed light on points."""
    file: dict[str, Shown] = {}
    while True:
        found: dict[str, Shown] = {}
        for columns in tables():
            part = look_at(columns, names, ways, file=file).shown
            found |= {n: found[n].merge(s) if n in found else s for n, s in part.items()}
        if _has_commas(found, ways) == _has_commas(file, ways):
            return found
        file = found


def read_columns(
    columns: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    ways: Ways = USUAL,
    owners: Owners = NOBODY,
    file: Mapping[str, Shown] | None = None,
) -> Columns:
    """Read columns, in the order of these names; `file` as for `look_at`.

    Refuse a table that `ways.strict` holds to what was known before, and that nothing settles.
    """
    quick, slow, shown = look_at(columns, names, ways, owners, file)
    settled = settle(shown if file is None else file, owners, ways)
    styles = {name: _style(name, settled, quick[name], columns[name]) for name in names}
    if not slow and not ways.keep:
        ready = [cells for cells in quick.values() if cells is not None]
        if all((cells["kind"] == Kind.NUMBER).all() for cells in ready):
            told = _blurred(names, ready)
            x = np.stack([c["value"] for c in ready], 1, dtype=np.float32, casting="same_kind")
            return Columns(x, {}, styles, (*settled.remarks, *told))
    words: dict[float, str] = {}
    found = np.empty((len(names), len(next(iter(columns.values())))), CELL)
    for place, name in enumerate(names):
        cells = quick[name]
        if cells is None:
            signed = name in ways.signed or not SIGNS.isdisjoint(slow[name].texts)
            how = (signed, name in ways.categories)
            by_client = settled.read.get(name, [Style()])
            cells = _slowly(slow[name], by_client[0], words, how)
            for style in set(by_client) - {by_client[0]}:
                theirs = [c for c, other in enumerate(by_client) if other == style]
                rows = np.isin(owners.places, theirs)
                cells[rows] = _slowly(slow[name], style, words, how)[rows]
        found[place] = cells
    told = _blurred(names, found)
    return Columns(found.T, words, styles, (*settled.remarks, *told))


def _style(name: str, settled: Settled, cells: Array | None, column: Sequence[Any]) -> Style:
    """How a column is written: plain numbers with points show these as well."""
    if cells is None or name in settled.kept:
        return settled.kept.get(name, Style())
    return Style(".") if _has_points(column) else Style()


def _blurred(names: Sequence[str], columns: Iterable[Array]) -> list[str]:
    """Tells of whole numbers that are one number in 32 bits."""
    told = []
    for name, cells in zip(names, columns, strict=True):
        values = cells["value"][cells["kind"] == Kind.NUMBER]
        large = values[np.abs(values) >= EXACT]
        if not len(large):
            continue
        exact = np.unique(large)
        short_ = exact.astype(np.float32)
        same = np.flatnonzero(short_[1:] == short_[:-1])
        such = f"{exact[-1]:.0f}"
        if len(same):
            such = " and ".join(f"{value:.17g}" for value in exact[same[0] : same[0] + 2])
        if len(same) or EXACT64 <= exact[-1] < 2.0**64:
            told.append(
                f"{short(name)!r}: numbers such as {such} are not told apart from others nearby in "
                "32 bits: subtract a constant, or name the column in data.categories if these are "
                "codes"
            )
    return told


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


def _has_commas(shown: Mapping[str, Shown], ways: Ways) -> bool:
    if "," in (DECIMALS[ways.decimal], *(style.decimal for style in ways.known.values())):
        return True
    comma, point = (MARKS.index(mark) for mark in (Mark.COMMA, Mark.POINT))
    return any((s.counts[:, comma] > s.counts[:, point]).any() for s in shown.values())


def _has_points(column: Sequence[Any]) -> bool:
    if isinstance(column, np.ndarray) and column.dtype.kind not in "OUS":
        return False
    return set(map(type, column)) == {str} and "." in "".join(column)


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
