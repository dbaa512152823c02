"""Tables, as CSV, Parquet or a frame: columns of features, a label, perhaps whose each row is."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.cells import buckets, fingerprint
from fedpn.data.dataset import Array, Dataset
from fedpn.data.recipe import Recipe, Style, odd_cells
from fedpn.data.sources.columns import Columns, look_through, read_columns
from fedpn.data.sources.csvs import Table, csv_parts, read_csv
from fedpn.data.sources.guard import LONGEST, short, some
from fedpn.data.sources.labels import encode, name_values
from fedpn.data.sources.parquets import read_parquet
from fedpn.data.sources.shown import NOBODY, Owners, Shown
from fedpn.data.sources.styles import Ways
from fedpn.data.sources.writing import NO_SIGNS, NOTHING
from fedpn.data.units import of_names

LABEL, CLIENT = "label", "client"
WHOLE = re.compile(r"^(?:\+?(-?[1-9][0-9]*)|[+-]?(0))(?:\.0*)?$")
TRAINED = ", which this model was trained on"
READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}


class Wanted(NamedTuple):
    """What is asked of a table: names of columns, and how they are read."""

    label: str | None = None
    client: str | None = None
    features: tuple[str, ...] = ()  # none: all others
    ignore: tuple[str, ...] = ()
    ways: Ways = Ways()
    group: str | None = None
    least: int = 2  # classes; one will do where they are known already


ALL = Wanted()


def load_table(path: Path, wanted: Wanted = ALL) -> Dataset:
    """Takes the features named, or every column but those of label, client and group."""
    table = READERS[path.suffix.lower()](path)
    return of_table(path, path.stem, table, wanted)


def of_table(path: Path | str, name: str, table: Table, wanted: Wanted) -> Dataset:
    """The same of a table that is read already."""
    label = _column(path, table, wanted.label or LABEL, "label")
    client = wanted.client
    if client is not None or CLIENT in table.columns:
        client = _column(path, table, client or CLIENT, "client")
    group = None if wanted.group is None else _column(path, table, wanted.group, "group")
    told = (label, client, group)
    names = _chosen(path, table, wanted, told)
    texts = {column: _texts(column, table) for column in told if column}
    kept, remarks = _told(path, texts)
    owners = _owners(texts[client]) if client and not wanted.ways.strict else NOBODY
    found = read_columns(table.columns, names, wanted.ways, owners)
    y, classes = encode(texts[label][kept], f"{label!r} of {path}", least=wanted.least)
    owner, clients = (
        name_values(texts[client][kept], f"{client!r} of {path}") if client else (None, ())
    )
    x = found.x if kept.all() else found.x[kept]
    return Dataset(
        name,
        x,
        y,
        classes,
        owner,
        clients,
        names,
        remarks=(*table.remarks, *found.remarks, *remarks),
        words=found.words,
        styles=found.styles,
        group=of_names(texts[group][kept]) if group else None,
        groups=group or "",
    )


def _owners(texts: Array) -> Owners:
    """Whose rows are: each client writes in its own way."""
    names, places = np.unique(texts, return_inverse=True)
    nobody = int(names[0] == "")
    return Owners(tuple(map(str, names[nobody:])), places - nobody)


def of_frame(frame: Any) -> Table:
    """A data frame's columns."""
    columns: dict[str, Any] = {
        composed(str(name)): np.asarray(frame[name]) for name in frame.columns
    }
    return Table(columns, lambda row: f"row {row} of the frame")


def _chosen(
    path: Path | str, table: Table, wanted: Wanted, taken: Sequence[str | None]
) -> tuple[str, ...]:
    """The columns to learn from."""
    features, categories = wanted.features, wanted.ways.categories
    for setting, asked in (("ignore", wanted.ignore), ("categories", categories)):
        absent = [name for name in asked if name not in table.columns]
        if absent:
            raise UserError(
                f"data.{setting} names {some(absent)}, which {path} has not; its columns are "
                f"{some(table.columns)}"
            )
    told = next((name for name in taken if name in features), None)
    if told:
        raise UserError(
            f"data.features names {told!r}, which is the label, client or group of each row: it "
            "cannot be learned from as well"
        )
    gone = {*taken, *wanted.ignore}
    names = features or tuple(n for n in table.columns if n not in gone)
    if not names:
        raise UserError(f"{path} has no column beside {taken[0]!r}; add the features to learn from")
    _find_all(path, table, names, "name the features with --set data.features=…")
    return names


def _told(path: Path | str, texts: Mapping[str, Array]) -> tuple[Array, list[str]]:
    """Which rows tell what they are and whose; the others are of no use, and counted."""
    kept = np.ones(len(next(iter(texts.values()))), bool)
    remarks = []
    for name, column in texts.items():
        empty = column == ""
        if empty.all():
            raise UserError(f"the column {name!r} of {path} is empty in every row; fill it in")
        if empty.any():
            remarks.append(f"{int(empty.sum())} rows that have nothing in {name!r} are left out")
        kept &= ~empty
    if not kept.any():
        raise UserError(f"no row of {path} has something in each of {some(texts)}; fill them in")
    return kept, remarks


class Part(NamedTuple):
    """Some rows of a table: what a model takes of them, and other columns as they stand."""

    features: Array
    others: dict[str, list[Any]]
    remark: str = ""


def read_parts(
    path: Path,
    features: Sequence[str],
    others: Sequence[str],
    rows: int,
    recipe: Recipe | None = None,
) -> Iterator[Part]:
    """Reads columns in the order of their names, or all where none is named, part by part.

    A file is read twice where its columns were prepared: how they are written is the whole's.
    """
    whole = [read_parquet(path)] if path.suffix.lower() == ".parquet" else None

    def columns() -> Iterator[Mapping[str, Sequence[Any]]]:
        for table in whole or csv_parts(path, rows):
            _find_all(path, table, features, trained=TRAINED)
            yield table.columns

    file = None if recipe is None else look_through(columns, recipe.names, ways_of(recipe))
    for table in whole or csv_parts(path, rows):
        for name in others:
            _column(path, table, name, "id")
        names = features or tuple(name for name in table.columns if name not in others)
        found = table_rows(path, table, names, recipe, file)
        passed = {name: [_plain(v) for v in table.columns[name]] for name in others}
        yield Part(found.x, passed, "; ".join(found.remarks))


def table_rows(
    path: Path | str,
    table: Table,
    names: Sequence[str],
    recipe: Recipe | None,
    file: Mapping[str, Shown] | None = None,
) -> Columns:  # x: float32 [N, F]
    """Rows in the form that a model takes: prepared as those it was trained on, where they were."""
    _find_all(path, table, names, trained=TRAINED)
    if recipe is None:
        x = np.stack([_numbers(name, table) for name in names], axis=1)
        return Columns(x, {}, {})
    found = read_columns(table.columns, recipe.names, ways_of(recipe), file=file)
    odd = odd_cells(found.x, recipe, found.words)
    return found._replace(x=recipe(found.x), remarks=(*found.remarks, *odd))


def ways_of(recipe: Recipe | None, newcomer: bool = False) -> Ways:
    """How columns are read where a recipe was learned: as they were then, or not at all."""
    if recipe is None:
        return Ways()
    signs = buckets(np.array([fingerprint(sign) for sign in NO_SIGNS]), recipe.bits).tolist()
    return Ways(
        categories=tuple(column.name for column in recipe.columns if column.text),
        known={c.name: Style(c.decimal, c.day_first) for c in recipe.columns},
        signed=tuple(c.name for c in recipe.columns if not set(signs).isdisjoint(c.values)),
        keep=True,
        strict=True,
        newcomer=newcomer,
    )


def _plain(value: Any) -> Any:
    """A value of an array as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


def _column(path: Path | str, table: Table, name: str, option: str) -> str:
    if name not in table.columns:
        setting = f"the {option} column with --set data.{option}=…"
        way = "one of them" if option == "id" else setting
        raise UserError(
            f"{path} has no column {name!r}; its columns are {some(table.columns)}: name {way}"
        )
    return name


def _find_all(
    path: Path | str, table: Table, names: Sequence[str], hint: str = "", trained: str = ""
) -> None:
    absent = [name for name in names if name not in table.columns]
    if not names:
        raise UserError(f"{path} has no column of features; add some: {hint}")
    if absent:
        raise UserError(
            f"{path} lacks the features {some(absent)}{trained}; its columns are "
            f"{some(table.columns)}{f': {hint}' if hint else ''}"
        )


def _numbers(name: str, table: Table) -> Array:
    column = table.columns[name]
    try:
        values = np.array(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.array([_number(value) for value in column])
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is named below
        features = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(features))
    if len(bad):
        row = int(bad[0])
        large = " that 32 bits hold" if np.isfinite(values[row]) else ""
        raise UserError(
            f"{table.place(row)} holds {short(str(column[row]))!r} in the column {short(name)!r}; "
            f"a feature is a number{large} in every row: fill it in, encode it, or drop the column "
            "or the row"
        )
    return features


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (TypeError, ValueError):
        return float("nan")


def _texts(name: str, table: Table) -> Array:
    """A class may be called by any name or whole number; "" where nothing is told."""
    column = table.columns[name]
    told = ["" if value is None else str(value).strip() for value in column]
    told = ["" if text.casefold() in NOTHING - NO_SIGNS else text for text in told]
    long = next((row for row, text in enumerate(told) if len(text) > LONGEST), None)
    if long is not None:
        raise UserError(
            f"{table.place(long)} holds {short(told[long])!r} in the column {short(name)!r}, which "
            f"has {len(told[long])} characters; give it a name of at most {LONGEST}"
        )
    raw = np.array(told)
    texts, numbers = np.unique(raw, return_inverse=True)
    for i, text in enumerate(texts):
        if _number(text) % 1 > 0 or math.isinf(_number(text)):
            row = int(np.flatnonzero(numbers == i)[0])
            raise UserError(
                f"{table.place(row)} holds {str(text)!r} in the column {name!r}, which needs a "
                "whole number or a name in every row"
            )
    # Whole numbers look the same however they are stored or written: +1, 1.0 and 1.00 are 1.
    whole = [WHOLE.sub(r"\1\2", text) for text in texts.tolist()]
    return np.array(whole)[numbers]
