"""fedpn report, compare, algorithms and settings: what there is to read."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError
from fedpn.core.rows import write_rows

WRITTEN = {"out": "table", "csv": "clients", "parquet": "clients", "differences": "differences"}


def add(commands: Any) -> None:
    _add_report(commands)
    _add_compare(commands)
    command(commands, "algorithms", _algorithms, "list the algorithms")
    text = "print every setting with its default and what it is for, as a config file"
    option = command(commands, "settings", _settings, text).add_argument
    option("--algorithm", default="fedpn", help="whose (default: fedpn)")
    option("--dataset", default="digits", help="on which data (default: digits)")


def _settings(options: argparse.Namespace) -> None:
    from fedpn.runs.glossary import glossary

    print(glossary(options.algorithm, options.dataset), end="")


def _add_report(commands: Any) -> None:
    text = "print the table of one run, or of several seeds, and write its page"
    option = command(commands, "report", _report, text).add_argument
    option("runs", type=Path, nargs="+", metavar="RUN", help="runs that differ in their seed alone")
    option("--out", type=Path, help="the page (default: report.html in a single run)")


def _report(options: argparse.Namespace) -> None:
    from fedpn.core.store import verify
    from fedpn.reporting import report

    for run in options.runs:
        verify(run, report.FILES)
    print(report.text(options.runs))
    out = options.out or (options.runs[0] / "report.html" if len(options.runs) == 1 else None)
    if out is not None:
        report.write_page(options.runs, out)
        print(f"\nreport: {out}")


def _add_compare(commands: Any) -> None:
    text = "set runs of several methods on the same data side by side, the best first"
    option = command(commands, "compare", _compare, text).add_argument
    option("runs", type=Path, nargs="+", metavar="RUN", help="seeds of one method make one row")
    option("--out", type=Path, help="the table, as it is printed, as .csv, .jsonl or .md")
    text = "figures of each client as numbers, a row each (.csv)"
    option("--csv", type=Path, metavar="FILE", help=text)
    option("--parquet", type=Path, metavar="FILE", help="the same as .parquet")
    text = "every pair of methods as numbers: difference, interval, p (.csv, .jsonl, .md, .parquet)"
    option("--differences", type=Path, metavar="FILE", help=text)
    option("--plot", type=Path, metavar="FILE", help="a picture: .png, .svg or .pdf")


def _compare(options: argparse.Namespace) -> None:
    from fedpn.runs.studies.comparison import Comparison

    for name in ("csv", "parquet"):
        path = getattr(options, name)
        if path is not None and path.suffix != f".{name}":
            raise UserError(f"--{name} {path}: the name must end in .{name}")
    found = Comparison(options.runs)
    print(found)
    head, *rows = found.lines()
    written: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "out": lambda: [dict(zip(head, row, strict=True)) for row in rows],
        "csv": found.rows,
        "parquet": found.rows,
        "differences": lambda: [one.row() for one in found.compared],
    }
    for name, values in written.items():
        path = getattr(options, name)
        if path is not None:
            write_rows(path, values(), f"--{name}")
            print(f"\n{WRITTEN[name]}: {path}")
    if options.plot is not None:
        found.picture.save(options.plot)
        print(f"\nplot: {options.plot}")


def _algorithms(options: argparse.Namespace) -> None:
    from fedpn.algorithms import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        line = (algorithm.__doc__ or "").split("\n")[0]
        print(f"{name:<10}  {line.replace(f' ({algorithm.citation})', '')} [{algorithm.citation}]")
