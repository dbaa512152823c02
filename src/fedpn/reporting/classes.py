"""How each class of a finished run fares, read and checked."""

from dataclasses import dataclass
from pathlib import Path

from fedpn.reporting.finished import Origin
from fedpn.reporting.values import Value, read_json


@dataclass(frozen=True)
class ByClass:
    """How each class fares, over all clients."""

    rows: list[int]
    recall: list[float | None]
    precision: list[float | None]
    confusion: list[list[int]]  # by the true class, then by the answer


def read_by_class(run: Path, origin: Origin) -> ByClass | None:
    """The figures of each class, where a run has them."""
    tree, count = read_json(run / "metrics.json"), len(origin.classes)
    if "by_class" not in tree.fields():
        return None
    found = tree["by_class"]
    return ByClass(
        [item.whole() for item in found["rows"].items(count)],
        [item.optional(Value.number) for item in found["recall"].items(count)],
        [item.optional(Value.number) for item in found["precision"].items(count)],
        [[n.whole() for n in row.items(count)] for row in found["confusion"].items(count)],
    )
