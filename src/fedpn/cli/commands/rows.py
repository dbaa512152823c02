"""Rows of values -> a file of the kind that its name tells."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError

Rows = list[dict[str, Any]]


def write_rows(path: Path, rows: Rows) -> None:
    """Writes a table, the keys of its first row at its head."""
    from fedpn.core.store import write_text

    if path.suffix not in WRITERS:
        raise UserError(f"--out {path}: the name must end in {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no directory {path.parent}")
    write_text(path, WRITERS[path.suffix](rows))


def _csv(rows: Rows) -> str:
    file = io.StringIO()
    table = csv.DictWriter(file, list(rows[0]) if rows else [])
    table.writeheader()
    table.writerows(rows)
    return file.getvalue()


def _json_lines(rows: Rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _markdown(rows: Rows) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)] if rows else []
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


WRITERS: dict[str, Callable[[Rows], str]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".md": _markdown,
}
