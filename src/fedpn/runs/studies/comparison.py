"""Finished runs side by side in Python's hands: tables, differences beyond chance, a picture."""

from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.core.aligned import aligned
from fedpn.core.errors import UserError
from fedpn.core.extras import is_here, needed
from fedpn.core.store import IDENTITY, verify
from fedpn.reporting.clients import Seen, long_rows, look
from fedpn.reporting.compare import FILES, TEXTS, Method, read_methods, table
from fedpn.reporting.differences import Compared, assumptions, differences
from fedpn.runs.result import Run, framed

if TYPE_CHECKING:
    from fedpn.reporting.pictures import Picture

MOST_PAIRS = 3  # that are all told; of more, those with the best


class Comparison:
    """Methods from the best to the worst, each with the runs of its seeds."""

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            verify(path, [*FILES, *([IDENTITY] if (path / IDENTITY).exists() else [])])
        self.methods: list[Method] = read_methods(paths)

    @cached_property
    def seen(self) -> list[Seen]:
        """The methods with the figures of their clients."""
        return [look(method) for method in self.methods]

    @cached_property
    def compared(self) -> list[Compared]:
        """All pairs of methods on all sets of rows."""
        return differences(self.seen)

    def table(self) -> Any:
        """A row for each method, the best first: a frame where pandas is there."""
        return framed([_numbers(method) for method in self.methods])

    def differences(self) -> Any:
        """A row for each pair of methods and set of rows: a frame where pandas is there."""
        return framed([one.row() for one in self.compared])

    def clients(self) -> Any:
        """A row for each run, client, way of answering and set: a frame where pandas is there."""
        return framed(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """The same, as plain rows."""
        return long_rows(self.seen)

    @property
    def picture(self) -> "Picture":
        """A dot for each client, mean and interval for each method."""
        with needed("a picture"):
            from fedpn.reporting.compare_plots import picture

        return picture(self.seen)

    def lines(self) -> list[list[str]]:
        """The table as texts, its head first."""
        return table(self.methods)

    def sentences(self) -> list[str]:
        """What is known of differences: all of few methods; of many, those from the best."""
        told = self.compared
        best = self.methods[0].name
        if len(self.methods) > MOST_PAIRS:
            told = [one for one in told if best in (one.better, one.other) and one.rows != "ood"]
        said = [*map(str, told), *assumptions(self.compared)]
        if len(self.methods) > 1 and not self.compared:
            said.append("differences are not tested: these methods have no seed in common")
        return said

    def __repr__(self) -> str:
        lines = aligned(self.lines(), TEXTS)
        text = [lines[0], "─" * max(map(len, lines)), *lines[1:]]
        said = self.sentences()
        return "\n".join([*text, "", *said] if said else text)

    def _repr_html_(self) -> str:
        head, *rows = self.lines()
        lines = [_row(head, "th"), *(_row(row, "td") for row in rows)]
        said = "".join(f"<p>{escape(text)}</p>" for text in self.sentences())
        picture = self.picture.svg() if is_here("matplotlib") else ""
        return f"<table>{''.join(lines)}</table>{said}{picture}"


def compare(runs: Sequence[Run | str | Path]) -> Comparison:
    """Sets finished runs on the same data side by side; seeds of one method belong together.

    `fedpn.compare([run, "runs/other"])`; show it, or ask for `.table()` and `.differences()`.
    """
    if isinstance(runs, str | Path | Run) or not runs:
        raise UserError('compare takes a list of runs, such as ["runs/a", "runs/b"]')
    return Comparison([run.path if isinstance(run, Run) else Path(run) for run in runs])


COLUMNS = {"InD, %": "ind", "OOD, %": "ood", "Mix, %": "mix", "worst client, %": "worst_mix"}


def _numbers(method: Method) -> dict[str, Any]:
    """Means and standard errors; shares of 1."""
    mean, error = method.mean(), method.error()
    row: dict[str, Any] = {"method": method.name, "answers": method.headline}
    row["seeds"] = len(method.runs)
    for column, value in mean.items():
        name = COLUMNS.get(column, column.lower())
        row |= {name: value, f"{name}_error": error[column] if error else None}
    return row


def _row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
