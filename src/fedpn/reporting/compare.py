"""Runs of several methods side by side: what differs between them, and what came of it."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.core.settings import leaves
from fedpn.core.summary import standard_error, summarise

Tree = dict[str, Any]
FILES = ["metrics.json", "config.toml"]
SAME = ("dataset", "clients", "data")  # for figures of two runs to mean the same
# Of what answers: where metrics.json has it.
COLUMNS = {
    "InD, %": ("accuracy", "ind"),
    "OOD, %": ("accuracy", "ood"),
    "Mix, %": ("accuracy", "mix"),
    "worst client, %": ("worst", "mix"),
    "AUROC": ("routing", "auroc"),
    "AURC": ("abstention", "aurc"),
    "ECE": ("calibration", "ece"),
    "NLL": ("calibration", "nll"),
}
TEXTS = 3  # columns before those


def compare(paths: Sequence[Path]) -> list[list[str]]:
    """Rows of a table, the best on Mix first (on InD, where nothing is foreign).

    Runs that differ in their seed alone make one row, ± the standard error over seeds.
    """
    groups: dict[str, list[tuple[Tree, Tree]]] = {}
    for path in paths:
        settings = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        _refuse_unlike(settings, next(iter(groups.values()))[0][0] if groups else settings, path)
        seedless = {key: value for key, value in leaves(settings) if key != "seed"}
        metrics = store.read_json(path / "metrics.json")
        groups.setdefault(repr(seedless), []).append((settings, metrics))
    names = _names([group[0][0] for group in groups.values()])
    found = [_row(name, group) for name, group in zip(names, groups.values(), strict=True)]
    rows = [
        ["method", "answers", "seeds", *COLUMNS],
        *(row for _, row in sorted(found, reverse=True)),
    ]
    known = [j for j, _ in enumerate(rows[0]) if any(row[j] != "–" for row in rows[1:])]
    return [[row[j] for j in known] for row in rows]


def _refuse_unlike(settings: Tree, first: Tree, path: Path) -> None:
    for key in SAME:
        if settings[key] != first[key]:
            raise UserError(
                f"{path} cannot be compared with the first run: they differ in {key} "
                f"({settings[key]} and {first[key]})"
            )


def _names(settings: Sequence[Tree]) -> list[str]:
    """An algorithm's name, and the settings by which it differs from others of that name."""
    flat = [dict(leaves(tree)) for tree in settings]
    names = []
    for mine in flat:
        alike = [other for other in flat if other["algorithm"] == mine["algorithm"]]
        apart = [k for k in mine if k != "seed" and any(o.get(k) != mine[k] for o in alike)]
        told = [f"{key}={mine[key]}" for key in apart if mine[key] != ""]
        names.append(" ".join([mine["algorithm"], *told]))
    return names


def _row(name: str, group: list[tuple[Tree, Tree]]) -> tuple[float, list[str]]:
    """What a method is ordered by, and its row."""
    runs = [metrics for _, metrics in group]
    seeds = [run["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"two runs of {name} have the same seed")
    found = [_figures(run) for run in runs]
    mean, error = summarise(found), summarise(found, standard_error)
    cells = [_cell(key, value, error[key], len(runs) > 1) for key, value in mean.items()]
    order = next((mean[key] for key in ("Mix, %", "InD, %") if mean[key] is not None), 0.0)
    return order, [name, runs[0]["headline"], ", ".join(map(str, sorted(seeds))), *cells]


def _figures(metrics: Tree) -> Tree:
    who = metrics["headline"]
    near = metrics | {
        "accuracy": metrics["accuracy"][who],
        "worst": metrics["spread"]["worst"][who],
    }
    return {name: near.get(place, {}).get(key) for name, (place, key) in COLUMNS.items()}


def _cell(name: str, value: float | None, error: float, several: bool) -> str:
    if value is None:
        return "–"
    scale, digits = (100, 1) if name.endswith("%") else (1, 3)
    text = f"{scale * value:.{digits}f}"
    return f"{text} ± {scale * error:.{digits}f}" if several else text
