"""A finished run in Python's hands: figures, tables, history, and models that answer."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.summary import SETS
from fedpn.federated.checkpoint import HISTORY
from fedpn.reporting import report
from fedpn.reporting.finished import read_origin
from fedpn.reporting.tables import accuracy_table
from fedpn.serving.bundle import read_about
from fedpn.serving.predict import Predictor, load


class Run(Mapping[str, Any]):
    """A finished run; `run["accuracy"]` and the like are its metrics."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics: dict[str, Any] = store.read_json(self.path / "metrics.json")

    def __getitem__(self, key: str) -> Any:
        return self.metrics[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients."""
        return read_about(self.path).clients

    def table(self) -> Any:
        """Accuracy of each client by way of answering and set: a frame where pandas is there."""
        rows = [
            {"client": name, "answers": who, "set": of, "accuracy": row[of]}
            for name, client in zip(self.clients, self.metrics["per_client"], strict=True)
            for who, row in client["accuracy"].items()
            for of in SETS
            if row[of] is not None
        ]
        return framed(rows)

    def history(self) -> Any:
        """A row for each round: a frame where pandas is there."""
        path = self.path / HISTORY
        lines = store.read_text(path).splitlines() if path.exists() else []
        return framed([store.parse_json(line, path) for line in lines])

    def predictor(self, client: int | str | None = None, trust: bool = False) -> Predictor:
        """The models of a client, which answer; `trust` runs code that the run names."""
        return load(self.path, client, trust)

    @property
    def report(self) -> Path:
        """The page that shows the run."""
        return self.path / "report.html"

    def __repr__(self) -> str:
        return report.text([self.path])

    def _repr_html_(self) -> str:
        runs = report.read_runs([self.path])
        head, *rows = accuracy_table(runs)
        lines = [_line(head, "th"), *(_line(row, "td") for row in rows)]
        title = report.heading(runs, read_origin(self.path))
        return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"


def open(path: str | Path) -> Run:
    """Opens a finished run."""
    return Run(path)


def framed(rows: list[dict[str, Any]]) -> Any:
    """Rows as a data frame where pandas is there, else as they are."""
    try:
        import pandas
    except ModuleNotFoundError:
        return rows
    return pandas.DataFrame(rows)


def _line(cells: list[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
