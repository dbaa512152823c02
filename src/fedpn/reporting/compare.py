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
FILES = ["metrics.json", "config.toml"]
SAME = ("dataset", "clients", "data")  # for figures of two runs to mean the same
LEFT_OPEN = ("", "auto")  # values by which a setting leaves its choice to the algorithm
HEAD = ("method", "answers", "seeds")
TEXTS = len(HEAD)  # columns of texts; all others are of numbers


@dataclass(frozen=True)
class Method:
    """Runs that differ in their seed alone."""

    settings: Settings  # of the first
    runs: list[Metrics]


def compare(paths: Sequence[Path]) -> list[list[str]]:
    """Rows of a table, the best on Mix first (on InD, where nothing is foreign).

    Runs that differ in their seed alone make one row, ± the standard error over seeds.
    """
    methods = _methods(paths)
    names = _names([method.settings for method in methods])
    pairs = zip(names, methods, strict=True)
    found = sorted((_row(name, method.runs) for name, method in pairs), reverse=True)
    rows = [[*HEAD, *_columns(methods[0].runs[0])], *(row for _, row in found)]
    known = [j for j, _ in enumerate(rows[0]) if any(row[j] != UNKNOWN for row in rows[1:])]
    return [[row[j] for j in known] for row in rows]


def _methods(paths: Sequence[Path]) -> list[Method]:
    """Reads runs, and puts those together that differ in their seed alone."""
    found: dict[str, Method] = {}
    first: Settings | None = None
    for path in paths:
        settings = read_settings(path)
        first = first or settings
        for key in SAME:
            if settings.get(key) != first.get(key):
                raise UserError(
                    f"{path} cannot be compared with the first run: they differ in {key} "
                    f"({plain(str(settings.get(key)))} and {plain(str(first.get(key)))})"
                )
        seedless = {key: value for key, value in leaves(settings) if _matters(key)}
        method = found.setdefault(repr(seedless), Method(settings, []))
        method.runs.append(read_metrics(path))
    return list(found.values())


def _names(settings: Sequence[Settings]) -> list[str]:
    """An algorithm's name, and the settings by which it differs from others of that name."""
    flat = [dict(leaves(tree)) for tree in settings]
    names = []
    for mine in flat:
        namesakes = [other for other in flat if other["algorithm"] == mine["algorithm"]]
        differences = [
            f"{key}={value}"
            for key, value in mine.items()
            if _matters(key)
            and value not in LEFT_OPEN
            and any(other.get(key) != value for other in namesakes)
        ]
        names.append(plain(" ".join([mine["algorithm"], *differences])))
    return names


def _matters(key: str) -> bool:
    """Tells whether a setting makes a method: seeds are many, and engines compute the same.

    >>> [key for key in ("seed", "engine.cohort", "train.batch") if _matters(key)]
    ['train.batch']
    """
    return key != "seed" and not key.startswith("engine.")


def _row(name: str, runs: Sequence[Metrics]) -> tuple[float, list[str]]:
    """What a method is ordered by, and its row."""
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"two runs of {name} have the same seed")
    columns = [_columns(run) for run in runs]
    mean, error = summarise(columns), summarise(columns, standard_error)
    cells = [
        _cell(column, value, error[column] if len(runs) > 1 else None)
        for column, value in mean.items()
    ]
    order = next((mean[column] for column in ("Mix, %", "InD, %") if mean[column] is not None), 0.0)
    return order, [name, runs[0].headline, ", ".join(map(str, sorted(seeds))), *cells]


def _columns(run: Metrics) -> dict[str, float | None]:
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
