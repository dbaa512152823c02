"""Runs of several methods side by side: what differs between them, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.core.settings import leaves
from fedpn.core.summary import standard_error, summarise
from fedpn.reporting.finished import Metrics, read_metrics, read_settings
from fedpn.reporting.tables import UNKNOWN

Settings = dict[str, Any]
Figures = dict[str, float | None]
FILES = ["metrics.json", "config.toml", "bundle.json"]
SAME = ("dataset", "clients", "data")  # for figures of two runs to mean the same
LEFT_OPEN: tuple[Any, ...] = (
    "",
    "auto",
    [],
)  # values by which a setting leaves its choice to the algorithm
HEAD = ("method", "answers", "seeds")
TEXTS = len(HEAD)  # columns of texts; all others are of numbers


@dataclass(frozen=True)
class Method:
    """Runs that differ in their seed alone."""

    name: str
    settings: Settings  # of the first
    runs: list[Metrics]
    paths: list[Path]

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def headline(self) -> str:
        """The way of answering that the method stands for."""
        return self.runs[0].headline

    def mean(self) -> Figures:
        """The figures over seeds, under the names of their columns."""
        found: Figures = summarise([columns(run) for run in self.runs])
        return found

    def error(self) -> Figures | None:
        """The standard errors over seeds, where there are several."""
        if len(self.runs) < 2:
            return None
        found: Figures = summarise([columns(run) for run in self.runs], standard_error)
        return found


def compare(paths: Sequence[Path]) -> list[list[str]]:
    """Rows of a table, the best on Mix first (on InD, where nothing is foreign).

    Runs that differ in their seed alone make one row, ± the standard error over seeds.
    """
    return table(read_methods(paths))


def table(methods: Sequence[Method]) -> list[list[str]]:
    """Methods as rows of texts, below a head; figures that nobody has are left out."""
    rows = [[*HEAD, *columns(methods[0].runs[0])], *map(_row, methods)]
    known = [j for j, _ in enumerate(rows[0]) if any(row[j] != UNKNOWN for row in rows[1:])]
    return [[row[j] for j in known] for row in rows]


def read_methods(paths: Sequence[Path]) -> list[Method]:
    """Reads runs, puts those together that differ in their seed alone, and the best first."""
    found: dict[str, list[tuple[Path, Settings]]] = {}
    first: Settings | None = None
    for path in paths:
        settings = read_settings(path)
        first = first or settings
        _refuse_other_data(path, _chosen(settings), _chosen(first))
        found.setdefault(repr(sorted(_chosen(settings).items())), []).append((path, settings))
    groups = list(found.values())
    names = _names([group[0][1] for group in groups])
    pairs = zip(names, groups, strict=True)
    methods = [_method(name, settings=g[0][1], paths=[p for p, _ in g]) for name, g in pairs]
    return sorted(methods, key=_order, reverse=True)


def _chosen(settings: Settings) -> Settings:
    """What makes a method, as flat keys; what is left open counts like what nobody knew of yet."""
    return {k: v for k, v in leaves(settings) if matters(k) and v not in LEFT_OPEN}


def _refuse_other_data(path: Path, mine: Settings, first: Settings) -> None:
    for key in {**first, **mine}:
        if key.partition(".")[0] in SAME and mine.get(key) != first.get(key):
            raise UserError(
                f"{path} cannot be compared with the first run: they differ in {key} "
                f"({plain(str(mine.get(key)))} and {plain(str(first.get(key)))})"
            )


def _method(name: str, settings: Settings, paths: list[Path]) -> Method:
    runs = [read_metrics(path) for path in paths]
    if len({run.seed for run in runs}) < len(runs):
        raise UserError(f"two runs of {name} have the same seed")
    return Method(name, settings, runs, paths)


def _order(method: Method) -> tuple[float, str]:
    mean = method.mean()
    figure = next((mean[name] for name in ("Mix, %", "InD, %") if mean[name] is not None), 0.0)
    return figure or 0.0, method.name


def differing(methods: Sequence[Method]) -> list[str]:
    """The settings in which methods differ, but for the algorithm, by their keys."""
    flat = [dict(leaves(method.settings)) for method in methods]
    keys = dict.fromkeys(key for tree in flat for key in tree if matters(key))
    values = {key: {repr(tree[key]) for tree in flat if key in tree} for key in keys}
    return [key for key, found in values.items() if len(found) > 1 and key != "algorithm"]


def _names(settings: Sequence[Settings]) -> list[str]:
    """An algorithm's name, and the settings by which it differs from others of that name."""
    flat = [dict(leaves(tree)) for tree in settings]
    names = []
    for mine in flat:
        namesakes = [other for other in flat if other["algorithm"] == mine["algorithm"]]
        differences = [
            f"{key}={value}"
            for key, value in mine.items()
            if matters(key)
            and value not in LEFT_OPEN
            and any(other.get(key) != value for other in namesakes)
        ]
        names.append(plain(" ".join([mine["algorithm"].rpartition(":")[2], *differences])))
    return names


def matters(key: str) -> bool:
    """Tells whether a setting makes a method: seeds are many, and engines compute the same.

    >>> [key for key in ("seed", "engine.cohort", "train.batch") if matters(key)]
    ['train.batch']
    """
    return key != "seed" and not key.startswith("engine.")


def _row(method: Method) -> list[str]:
    mean, error = method.mean(), method.error()
    cells = [_cell(name, value, error[name] if error else None) for name, value in mean.items()]
    return [method.name, method.headline, ", ".join(map(str, sorted(method.seeds))), *cells]


def columns(run: Metrics) -> Figures:
    """The figures of a run under the names of their columns."""
    accuracy, worst, measures = run.accuracy[run.headline], run.worst[run.headline], run.measures
    return {
        "InD, %": accuracy["ind"],
        "OOD, %": accuracy["ood"],
        "Mix, %": accuracy["mix"],
        "worst client, %": worst["mix"],
        "AUROC": measures["auroc"],
        "AURC": measures["aurc"],
        "ECE": measures["ece"],
        "NLL": measures["nll"],
    }


def _cell(column: str, value: float | None, error: float | None) -> str:
    """
    >>> _cell("Mix, %", 0.5, None), _cell("ECE", 0.5, 0.01), _cell("ECE", None, None)
    ('50.0', '0.500 ± 0.010', '–')
    """
    if value is None:
        return UNKNOWN
    scale, digits = (100, 1) if column.endswith("%") else (1, 3)
    text = f"{scale * value:.{digits}f}"
    return text if error is None else f"{text} ± {scale * error:.{digits}f}"
