"""Tables, as CSV or Parquet: numeric features, a label column, perhaps a client column."""

import csv
import itertools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.dataset import Array, Dataset
from fedpn.data.sources.labels import encode, name_values

LABEL, CLIENT = "label", "client"
SEPARATORS = ",;\t"
MISSING = {"", "na", "n/a", "nan", "null", "?"}


class Table(NamedTuple):
    columns: dict[str, Sequence[Any]]
    place: Callable[[int], str]  # a row's number -> how the user finds it


def load_table(
    path: Path, label: str | None = None, client: str | None = None, features: Sequence[str] = ()
) -> Dataset:
    """Takes the features named, or every column but the label's and the client's."""
    table = READERS[path.suffix.lower()](path)
    label = _column(path, table, label or LABEL, "label")
    if client is not None or CLIENT in table.columns:
        client = _column(path, table, client or CLIENT, "client")
    names = tuple(features) or tuple(n for n in table.columns if n not in (label, client))
    if not names:
        raise UserError(f"{path} has no column beside {label!r}; add the features to learn from")
    told = next((name for name in (label, client) if name in names), None)
    if told:
        raise UserError(f"data.features names {told!r}, which is what to tell or whose it is")
    x = _features(path, table, names, "name the features with --set data.features=…")
    y, classes = encode(_texts(label, table), f"{label!r} of {path}")
    owner, clients = (
        name_values(_texts(client, table), f"{client!r} of {path}") if client else (None, ())
    )
    return Dataset(path.stem, x, y, classes, owner, clients, names)


def read_features(path: Path, features: Sequence[str] = ()) -> Array:
    """Reads the columns of these names, in their order, or all where none is named."""
    table = READERS[path.suffix.lower()](path)
    hint = "they are what this model was trained on"
    return _features(path, table, features or tuple(table.columns), hint)


def read_csv(path: Path) -> Table:
    """Reads commas, semicolons or tabs, whichever splits the first line into the most columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = max(SEPARATORS, key=first.count)
            reader = csv.reader(itertools.chain([first], file), delimiter=separator)
            names = [name.strip() for name in next(reader, [])]
            numbered = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a table as UTF-8 text ({error})") from error
    _check_names(path, names)
    lines = [line for line, _ in numbered]
    for line, row in numbered:
        if len(row) != len(names):
            raise UserError(
                f"line {line} of {path} has {len(row)} values and the first line names "
                f"{len(names)} columns; is a separator missing?"
            )
    if not lines:
        raise UserError(f"{path} has no rows below its first line")
    columns = zip(*(row for _, row in numbered), strict=True)
    return Table(dict(zip(names, columns, strict=True)), lambda row: f"line {lines[row]} of {path}")


def read_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise UserError(f"reading {path} needs pyarrow: pip install 'fedpn[parquet]'") from error
    try:
        content = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise UserError(f"{path} is not a Parquet table ({error})") from error
    _check_names(path, content.column_names)
    if content.num_rows == 0:
        raise UserError(f"{path} has no rows")
    columns = {name: content.column(name).to_numpy() for name in content.column_names}
    return Table(columns, lambda row: f"row {row} of {path}")


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UserError(f"{path} has two columns named {twice[0]!r}; rename one of them")
    if not names or "" in names:
        raise UserError(f"the first line of {path} does not name every column; add the names")


def _column(path: Path, table: Table, name: str, option: str) -> str:
    if name not in table.columns:
        raise UserError(
            f"{path} has no column {name!r}; its columns are {_some(table.columns)}: "
            f"name the {option} column with --set data.{option}=…"
        )
    return name


def _features(path: Path, table: Table, names: Sequence[str], hint: str) -> Array:
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise UserError(
            f"{path} lacks the features {_some(absent)}; its columns are {_some(table.columns)}: "
            f"{hint}"
        )
    return np.stack([_numbers(name, table) for name in names], axis=1)


def _some(names: Collection[str]) -> str:
    listed = list(names)
    return ", ".join(listed if len(listed) <= 12 else [*listed[:6], "…", *listed[-5:]])


def _numbers(name: str, table: Table) -> Array:
    column = table.columns[name]
    try:
        values = np.array(column, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(value) for value in column])
    with np.errstate(over="ignore"):  # what float32 cannot hold is named below
        features = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(features))
    if len(bad):
        row = int(bad[0])
        raise UserError(
            f"{table.place(row)} holds {str(column[row])!r} in the column {name!r}; a feature is a "
            "number in every row: fill it in, encode it, or drop the column or the row"
        )
    return features


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _texts(name: str, table: Table) -> Array:
    """A class may be called by any name or whole number, but not by nothing."""
    column = table.columns[name]
    raw = np.array(["" if value is None else str(value).strip() for value in column])
    texts, numbers = np.unique(raw, return_inverse=True)
    for i, text in enumerate(texts):
        if text.lower() in MISSING or _number(text) % 1 > 0:
            row = int(np.flatnonzero(numbers == i)[0])
            raise UserError(
                f"{table.place(row)} holds {str(text)!r} in the column {name!r}, which needs a "
                "whole number or a name in every row"
            )
    # Whole numbers look the same whether they are stored as floats or not: 1.0 is '1'.
    whole = [t.removesuffix(".0") if _number(t) % 1 == 0 else t for t in texts.tolist()]
    return np.array(whole)[numbers]
