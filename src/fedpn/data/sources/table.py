"""Tables, as CSV or Parquet: numeric features, a label column, perhaps a client column."""

import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.data.dataset import Array, Dataset
from fedpn.data.sources.guard import LONGEST, fits, plain_file, reason, short, some
from fedpn.data.sources.labels import encode, name_values

LABEL, CLIENT = "label", "client"
LARGEST = 1 << 30  # bytes of a table
LINE = 1 << 24  # characters of a line
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
    return of_table(path, path.stem, table, label, client, features)


def of_table(
    path: Path | str,
    name: str,
    table: Table,
    label: str | None,
    client: str | None,
    features: Sequence[str],
) -> Dataset:
    """The same of a table that is read already."""
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
    return Dataset(name, x, y, classes, owner, clients, names)


class Part(NamedTuple):
    """Some rows of a table: the columns that a model takes, and others as they stand."""

    features: Array
    others: dict[str, list[Any]]


def read_parts(
    path: Path, features: Sequence[str], others: Sequence[str], rows: int
) -> Iterator[Part]:
    """Reads columns in the order of their names, or all where none is named, part by part."""
    whole = path.suffix.lower() == ".parquet"
    for table in [read_parquet(path)] if whole else csv_parts(path, rows):
        for name in others:
            _column(path, table, name, "id")
        names = features or tuple(name for name in table.columns if name not in others)
        found = _features(path, table, names, "they are what this model was trained on")
        yield Part(found, {name: [_plain(v) for v in table.columns[name]] for name in others})


def _plain(value: Any) -> Any:
    """A value of an array as Python has it."""
    return value.item() if isinstance(value, np.generic) else value


def read_csv(path: Path) -> Table:
    """Reads commas, semicolons or tabs, whichever splits the first line into the most columns."""
    for table in csv_parts(path):
        return table
    raise UserError(f"{path} has no rows below its first line; add some")


def csv_parts(path: Path, rows: int | None = None) -> Iterator[Table]:
    """The same, so many rows at a time; all at once where no number is given."""
    plain_file(path, LARGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = _lines(path, file)
            first = next(text, "")
            separator = max(SEPARATORS, key=first.count)
            reader = csv.reader(itertools.chain([first], text), delimiter=separator)
            names = [name.strip() for name in next(reader, [])]
            _check_names(path, names)
            numbered = ((reader.line_num, row) for row in reader if row)
            while part := list(itertools.islice(numbered, rows)):
                yield _csv_table(path, names, part)
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(
            f"{path} is not a table as UTF-8 text ({reason(error)}); save it as one"
        ) from error
    except csv.Error as error:
        raise UserError(
            f"{path} cannot be read from line {reader.line_num} on ({error}); is a quote not "
            "closed?"
        ) from error


def _csv_table(path: Path, names: Sequence[str], numbered: Sequence[tuple[int, Any]]) -> Table:
    for line, row in numbered:
        if len(row) != len(names):
            raise UserError(
                f"line {line} of {path} has {len(row)} values and the first line names "
                f"{len(names)} columns; is a separator missing?"
            )
    lines = [line for line, _ in numbered]
    columns = zip(*(row for _, row in numbered), strict=True)
    return Table(dict(zip(names, columns, strict=True)), lambda row: f"line {lines[row]} of {path}")


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """Never holds more of a line than a table has use for."""
    for number, line in enumerate(iter(lambda: file.readline(LINE + 1), ""), 1):
        if len(line) > LINE:
            raise UserError(
                f"line {number} of {path} has more than {LINE} characters; are its lines parted?"
            )
        yield line


def read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise UserError(f"reading {path} needs pyarrow: pip install 'fedpn[parquet]'") from error
    plain_file(path, LARGEST)
    try:
        with parquet.ParquetFile(path) as file:
            _check_parquet(path, file, pyarrow.types.is_nested)
        texts = [
            field.name
            for field in file.schema_arrow
            if pyarrow.types.is_string(field.type) or pyarrow.types.is_large_string(field.type)
        ]
        # Text that repeats is held once: a few bytes may stand for very many.
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            content = file.read()
        columns = {name: _values(content.column(name)) for name in content.column_names}
    except UserError:
        raise
    except Exception as error:  # readers of damaged files fail in many ways
        raise UserError(
            f"{path} is not a Parquet table ({reason(error)}); save it again"
        ) from error
    return Table(columns, lambda row: f"row {row} of {path}")


def _check_parquet(path: Path, file: Any, is_nested: Callable[[Any], bool]) -> None:
    """Refuses by the head what is no table or would not fit."""
    head, schema = file.metadata, file.schema_arrow
    _check_names(path, schema.names)
    if head.num_rows == 0:
        raise UserError(f"{path} has no rows; add some")
    packed = sum(head.row_group(i).total_byte_size for i in range(head.num_row_groups))
    claimed = max(packed, 8 * head.num_rows * len(schema.names))
    fits(claimed, f"{head.num_rows} rows of {path}", "take fewer rows or columns")
    nested = next((field for field in schema if is_nested(field.type)), None)
    if nested is not None:
        raise UserError(
            f"the column {short(nested.name)!r} of {path} holds {plain(short(str(nested.type)))}; "
            "keep one number or name in each cell"
        )


def _values(column: Any) -> Sequence[Any]:
    if not hasattr(column.type, "index_type"):
        values: Sequence[Any] = column.to_numpy()
        return values
    values = []
    for chunk in column.chunks:
        names = [*chunk.dictionary.to_pylist(), None]
        values += [names[i] for i in chunk.indices.fill_null(-1).to_pylist()]
    return values


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{path} has two columns named {short(twice)!r}; rename one of them")
    if not names or "" in names:
        raise UserError(f"the first line of {path} does not name every column; add the names")


def _column(path: Path | str, table: Table, name: str, option: str) -> str:
    if name not in table.columns:
        raise UserError(
            f"{path} has no column {name!r}; its columns are {some(table.columns)}: "
            f"name the {option} column with --set data.{option}=…"
        )
    return name


def _features(path: Path | str, table: Table, names: Sequence[str], hint: str) -> Array:
    absent = [name for name in names if name not in table.columns]
    if not names:
        raise UserError(f"{path} has no column of features; add some: {hint}")
    if absent:
        raise UserError(
            f"{path} lacks the features {some(absent)}; its columns are {some(table.columns)}: "
            f"{hint}"
        )
    return np.stack([_numbers(name, table) for name in names], axis=1)


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
    """A class may be called by any name or whole number, but not by nothing."""
    column = table.columns[name]
    told = ["" if value is None else str(value).strip() for value in column]
    long = next((row for row, text in enumerate(told) if len(text) > LONGEST), None)
    if long is not None:
        raise UserError(
            f"{table.place(long)} holds {short(told[long])!r} in the column {short(name)!r}, which "
            f"has {len(told[long])} characters; give it a name of at most {LONGEST}"
        )
    raw = np.array(told)
    texts, numbers = np.unique(raw, return_inverse=True)
    for i, text in enumerate(texts):
        if text.lower() in MISSING or _number(text) % 1 > 0 or math.isinf(_number(text)):
            row = int(np.flatnonzero(numbers == i)[0])
            raise UserError(
                f"{table.place(row)} holds {str(text)!r} in the column {name!r}, which needs a "
                "whole number or a name in every row"
            )
    # Whole numbers look the same whether they are stored as floats or not: 1.0 is '1'.
    whole = [t.removesuffix(".0") if _number(t) % 1 == 0 else t for t in texts.tolist()]
    return np.array(whole)[numbers]
