"""Rows of values -> a file, of the kind that the ending of its name says."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.core.plain import plain

Rows = list[dict[str, Any]]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")  # spreadsheets take such texts as formulas
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


def write_rows(path: Path, rows: Rows) -> None:
    """Writes a table, the keys of its first row at its head."""
    from fedpn.core.store import write_text

    if path.suffix not in WRITERS:
        raise UserError(f"--out {path}: the name must end in {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no directory {path.parent}")
    text = WRITERS[path.suffix](rows)
    # Names of files need not be valid text; what is not is written as \\udc… is.
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


def _csv(rows: Rows) -> str:
    file = io.StringIO()
    table = csv.writer(file)
    for line in _lines(rows):
        table.writerow([_no_formula(cell) for cell in line])
    return file.getvalue()


def _no_formula(cell: Any) -> Any:
    """Marks a text as a text where a spreadsheet would take it as a formula.

    >>> _no_formula("=1+1"), _no_formula("-0.5"), _no_formula(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    is_text = isinstance(cell, str) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_text and cell.startswith(FORMULA_STARTS) else cell


def _json_lines(rows: Rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _markdown(rows: Rows) -> str:
    lines = _lines(rows)
    if lines:
        lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(map(_markdown_cell, line))} |\n" for line in lines)


def _markdown_cell(cell: Any) -> str:
    return "" if cell is None else plain(str(cell)).replace("|", r"\|")


def _lines(rows: Rows) -> list[list[Any]]:
    """The head of a table, then its rows; every row has the keys of the first."""
    return [list(rows[0]), *([row[key] for key in rows[0]] for row in rows)] if rows else []


WRITERS: dict[str, Callable[[Rows], str]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".md": _markdown,
}
