"""Rows of values -> a file, of the kind that the ending of its name says."""

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from fedpn.core.errors import UserError
from fedpn.core.extras import needed
from fedpn.core.plain import plain

Row = dict[str, Any]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")  # spreadsheets take such texts as formulas
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
GROUP = 4096  # rows of a Parquet file that are held at once


def write_rows(path: Path, rows: Iterable[Row], option: str = "--out") -> int:
    """Writes a table as its rows come, the keys of the first at its head; returns how many."""
    from fedpn.core.store import write_with

    if path.suffix not in WRITERS:
        raise UserError(f"{option} {path}: the name must end in {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {path.parent}")
    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    write_with(path, lambda place: WRITERS[path.suffix](place, counted()))
    return count


def _text(place: Path) -> IO[str]:
    # Names of files need not be valid text; what is not is written as \\udc… is.
    return place.open("w", encoding="utf-8", errors="backslashreplace", newline="")


def _csv(place: Path, rows: Iterable[Row]) -> None:
    with _text(place) as file:
        table = csv.writer(file)
        for line in _lines(rows):
            table.writerow([_no_formula(cell) for cell in line])


def _no_formula(cell: Any) -> Any:
    """Marks a text as a text where a spreadsheet would take it as a formula.

    >>> _no_formula("=1+1"), _no_formula("-0.5"), _no_formula(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    is_text = isinstance(cell, str) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_text and cell.startswith(FORMULA_STARTS) else cell


def _json_lines(place: Path, rows: Iterable[Row]) -> None:
    with _text(place) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _markdown(place: Path, rows: Iterable[Row]) -> None:
    with _text(place) as file:
        for number, line in enumerate(_lines(rows)):
            file.write(f"| {' | '.join(map(_markdown_cell, line))} |\n")
            if number == 0:
                file.write(f"| {' | '.join(['---'] * len(line))} |\n")


def _markdown_cell(cell: Any) -> str:
    return "" if cell is None else plain(str(cell)).replace("|", r"\|")


def _parquet(place: Path, rows: Iterable[Row]) -> None:
    with needed("writing .parquet"):
        import pyarrow
        from pyarrow import parquet
    left, writer = iter(rows), None
    try:
        while part := list(itertools.islice(left, GROUP)):
            schema = None if writer is None else writer.schema
            table = pyarrow.Table.from_pylist(part, schema=schema)
            if writer is None:  # a column that is empty so far may hold texts later on
                fields = [
                    f.with_type(pyarrow.string()) if f.type == pyarrow.null() else f
                    for f in table.schema
                ]
                table = table.cast(pyarrow.schema(fields))
                writer = parquet.ParquetWriter(place, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        parquet.write_table(pyarrow.table({}), place)


def _lines(rows: Iterable[Row]) -> Iterator[list[Any]]:
    """The head of a table, then its rows; every row has the keys of the first."""
    keys: list[str] = []
    for row in rows:
        if not keys:
            keys = list(row)
            yield keys
        yield [row[key] for key in keys]


WRITERS: dict[str, Callable[[Path, Iterable[Row]], None]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".md": _markdown,
    ".parquet": _parquet,
}
