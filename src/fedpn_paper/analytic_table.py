"""The closed form beside FedPN: one table from kept results, which docs/bayes.md shows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn_paper.results import stat

SETS = {
    "mnist": "MNIST",
    "fashionmnist": "FashionMNIST",
    "organamnist": "OrganAMNIST (subset)",
    "cifar10": "CIFAR10 (subset)",
    "svhn": "SVHN (subset)",
    "medicalmnist": "MedNIST",
}
HEAD = (
    "set",
    "FedPN switch, Mix",
    "FedPN oracle, Mix",
    "FedPN AURC",
    "analytic global, Mix",
    "analytic bayes, Mix",
    "analytic AURC",
    "own stream",
    "foreign stream",
    "shares learned",
    "seeds",
)

RIDGE_HEAD = (
    "set",
    *(f"{who}, Mix" for who in ("local", "global", "switch", "bayes", "oracle")),
    "AURC",
    "ECE",
    "own stream",
    "foreign stream",
    "seeds",
)

Tree = dict[str, Any]


def table(results: Path) -> str:
    """Rows in Markdown: mean ± standard error over seeds, accuracies in %."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    for name, title in SETS.items():
        paper = _read(sorted((results / "cells").glob(f"{name}-fedpn-s*.json")))
        ours = _read(sorted((results / "analytic").glob(f"{name}-s*.json")))
        lines.append("| " + " | ".join([title, *_cells(paper, ours)]) + " |")
    return "\n".join(lines)


def ridge_table(results: Path) -> str:
    """FedPN with a ridge head on patches and the trained encoder's layers."""
    lines = ["| " + " | ".join(RIDGE_HEAD) + " |", "|" + " --- |" * len(RIDGE_HEAD)]
    for name, title in SETS.items():
        runs = _read(sorted((results / "ridge").glob(f"{name}-s*.json")))
        if runs:
            lines.append("| " + " | ".join([title, *_ridge_cells(runs)]) + " |")
    return "\n".join(lines)


def _ridge_cells(runs: Sequence[Tree]) -> list[str]:
    ways = ("local", "global", "switch", "bayes", "oracle")
    accuracy = [stat([100 * run["accuracy"][who]["mix"] for run in runs]) for who in ways]
    streams = [
        stat([100 * run["streams"][name]["accuracy"] for run in runs])
        for name in ("own", "foreign")
    ]
    aurc = stat([run["abstention"]["aurc"] for run in runs]).mean
    ece = stat([run["calibration"]["ece"] for run in runs]).mean
    return [
        *map(str, accuracy),
        f"{aurc:.4f}",
        f"{ece:.3f}",
        *map(str, streams),
        str(len(runs)),
    ]


def _read(paths: Sequence[Path]) -> list[Tree]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _cells(paper: Sequence[Tree], ours: Sequence[Tree]) -> list[str]:
    def mix(runs: Sequence[Tree], who: str) -> str:
        return str(stat([100 * run["accuracy"][who]["mix"] for run in runs]))

    def aurc(runs: Sequence[Tree]) -> str:
        return f"{stat([run['abstention']['aurc'] for run in runs]).mean:.4f}"

    def stream(name: str) -> str:
        return str(stat([100 * run["streams"][name]["accuracy"] for run in ours]))

    shares = [
        f"{stat([run['streams'][name]['own_share'] for run in ours]).mean:.2f}"
        for name in ("own", "foreign", "mixed")
    ]
    return [
        mix(paper, "switch"),
        mix(paper, "oracle"),
        aurc(paper),
        mix(ours, "global"),
        mix(ours, "bayes"),
        aurc(ours),
        stream("own"),
        stream("foreign"),
        " / ".join(shares),
        f"{len(paper)} / {len(ours)}",
    ]
