"""The table of fair rows, as the documentation shows it."""

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
TITLES = {
    "fedpn": "FedPN",
    "analytic": "Analytic",
    "fedavg": "FedAvg",
    "local": "Local",
    "fedper": "FedPer",
    "fedrep": "FedRep",
    "fedbabu": "FedBABU",
    "fedbn": "FedBN",
    "perfedavg": "Per-FedAvg",
    "apfl": "APFL",
    "fedprox": "FedProx",
    "fedavgm": "FedAvgM",
    "scaffold": "SCAFFOLD",
    "ditto": "Ditto",
    "pfedme": "pFedMe",
    "fedrod": "FedRoD",
}
WAYS = {"switch": "its switch", "bayes": "by Bayes' rule"}
DATASETS = {"mnist": "MNIST", "fashionmnist": "FashionMNIST"}
HEAD = "| chosen | personal InD | OOD | Mix | global InD | OOD | Mix |"
SETS = ("ind", "ood", "mix")


def table(results: Tree) -> str:
    """A row for each method that is whole, under the words of its family."""
    name = results["about"]["dataset"]
    lines, family = [f"| {DATASETS.get(name, name)} {HEAD}", "| --- " * 8 + "|"], ""
    for row in results["rows"]:
        if "accuracy" not in row:
            continue
        if row["family"] != family:
            family = row["family"]
            lines.append(f"| **{row['steps']}** | | | | | | | |")
        lines += _lines(row)
    return "\n".join(lines)


def _lines(row: Tree) -> Iterator[str]:
    found = row["accuracy"]
    own = found.get("personal") or found.get("local")
    yield _line(TITLES[row["method"]], in_words(row), own, found.get("global"))
    for way, words in WAYS.items():
        if way in found:
            yield _line(f"… {words}", "", found[way], None)


def _line(name: str, chosen: str, own: Tree | None, whole: Tree | None) -> str:
    cells = [percent(by_set[of]) if by_set else "–" for by_set in (own, whole) for of in SETS]
    return "| " + " | ".join([name, chosen, *cells]) + " |"


def in_words(row: Tree) -> str:
    """The chosen settings that the tries of a method differ in."""
    tries = [tried["settings"] for tried in row["tries"]]
    keys = [key for key in tries[0] if len({tried[key] for tried in tries}) > 1]
    return ", ".join(f"`{key.split('.')[-1]}` {row['chosen'][key]:g}" for key in keys)


def percent(told: Tree) -> str:
    """
    >>> percent({"mean": 0.98214, "error": 0.0012})
    '98.2 ± 0.1'
    """
    return f"{100 * told['mean']:.1f} ± {100 * told['error']:.1f}"
