"""A federation as text: who has how many rows of which class."""

from fedpn.core.aligned import aligned
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation

MOST_CLIENTS, MOST_CLASSES = 40, 20


def describe(dataset: Dataset, federation: Federation) -> str:
    """Draws a table of clients and classes; long federations are cut, and say so."""
    shown = range(min(federation.clients, MOST_CLIENTS))
    kinds = range(min(len(dataset.classes), MOST_CLASSES))
    head = ["client", "train", "calib", "test", *(_short(dataset.classes[k]) for k in kinds)]
    lines = [head, *(_line(dataset, federation, client, kinds) for client in shown)]
    table = [title(dataset, federation), "", *aligned(lines), *_cut(dataset, federation)]
    return "\n".join(table)


def title(dataset: Dataset, federation: Federation) -> str:
    """Sums a federation up.

    >>> from fedpn.data.sources.datasets import load
    >>> from fedpn.data.federation import federate
    >>> from fedpn.data.partition import classes
    >>> digits = load("digits")
    >>> title(digits, federate(digits.y, classes(digits.y, 20, seed=1), seed=1))
    'digits: 1797 rows, 10 classes, 20 clients of 88 to 92 rows and 2 to 3 classes'
    """
    rows, kinds = federation.counts.sum(axis=1), (federation.counts > 0).sum(axis=1)
    left = f", {len(federation.left_over)} rows left over" if len(federation.left_over) else ""
    return (
        f"{dataset.name}: {len(dataset)} rows, {len(dataset.classes)} classes, "
        f"{federation.clients} clients of {_span(rows.min(), rows.max())} rows "
        f"and {_span(kinds.min(), kinds.max())} classes{left}"
    )


def client_name(dataset: Dataset, client: int) -> str:
    """What the data call a client, or its number."""
    return dataset.clients[client] if client < len(dataset.clients) else str(client)


def _line(dataset: Dataset, federation: Federation, client: int, kinds: range) -> list[str]:
    uses = (federation.train, federation.calibration, federation.test)
    counts = federation.counts[client]
    return [
        client_name(dataset, client),
        *(str(len(use[client])) for use in uses),
        *(str(counts[k]) if k < len(counts) and counts[k] else "·" for k in kinds),
    ]


def _cut(dataset: Dataset, federation: Federation) -> list[str]:
    more = [
        f"{total - most} more {what}"
        for total, most, what in (
            (federation.clients, MOST_CLIENTS, "clients"),
            (len(dataset.classes), MOST_CLASSES, "classes"),
        )
        if total > most
    ]
    return [f"… and {' and '.join(more)}"] if more else []


def _short(name: str) -> str:
    return name if len(name) <= 10 else f"{name[:9]}…"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
