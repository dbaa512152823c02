"""fedpn report and fedpn algorithms: tables."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.commands.command import command


def add(commands: Any) -> None:
    _add_report(commands)
    command(commands, "algorithms", _algorithms, "list the algorithms")


def _add_report(commands: Any) -> None:
    text = "print the table of one run, or of several seeds, and write its page"
    option = command(commands, "report", _report, text).add_argument
    option("runs", type=Path, nargs="+", metavar="RUN", help="runs that differ in their seed alone")
    option("--out", type=Path, help="the page (default: report.html in a single run)")


def _report(options: argparse.Namespace) -> None:
    from fedpn import report
    from fedpn.store import verify

    for run in options.runs:
        verify(run, report.FILES)
    print(report.text(options.runs))
    out = options.out or (options.runs[0] / "report.html" if len(options.runs) == 1 else None)
    if out is not None:
        report.write_page(options.runs, out)
        print(f"\nreport: {out}")


def _algorithms(options: argparse.Namespace) -> None:
    from fedpn.algorithms import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        line = (algorithm.__doc__ or "").split("\n")[0]
        print(f"{name:<10}  {line.replace(f' ({algorithm.citation})', '')} [{algorithm.citation}]")
