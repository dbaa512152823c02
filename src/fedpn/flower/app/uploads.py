"""Uploads at the border: a node may send anything, and only what was asked for comes in."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from flwr.app import RecordDict

from fedpn.core.settings import leaves
from fedpn.core.trees import Slots, flatten
from fedpn.flower.app.records import unpack
from fedpn.flower.app.roster import Reply

MOST, LONGEST, LARGEST = 20, 400, 2**53  # remarks, their letters, rows of a class
FIGURES = {
    *("client", "classes", "rows", "accuracy", "routing", "abstention", "streams", "apart"),
    *("classes_found", "confusion", "calibration", "remarks", "promise", "sets"),
}
LIMITS = {"nll": 1e4, "brier": 2.0, "rows": 2.0**53, "size": 2.0**16}  # those that are no shares


class Refused(Exception):  # noqa: N818
    """Why an upload does not count."""


def form_of(content: RecordDict) -> Slots | None:
    """What an upload holds, whatever that is; nothing where it cannot be read."""
    try:
        return unpack(content, ())
    except ValueError:
        return None


def most_common(forms: Iterable[Slots | None]) -> Slots | None:
    """One of those that have the names, shapes and types that most have."""
    marks: Counter[str] = Counter()
    examples: dict[str, Slots] = {}
    for form in forms:
        if form is not None:
            flat = flatten(form)
            mark = str([(name, t.dtype, tuple(t.shape)) for name, t in sorted(flat.items())])
            marks[mark] += 1
            examples.setdefault(mark, form)
    return examples[marks.most_common(1)[0][0]] if marks else None


def read_upload(content: RecordDict, expected: Slots | None) -> Slots:
    """Reads an upload that has the names, shapes and types expected."""
    if expected is None:
        raise Refused("uploaded what cannot be read")
    try:
        found = flatten(unpack(content, tuple(expected)))
    except ValueError as error:
        raise Refused(f"uploaded what cannot be read: {error}") from None
    asked = flatten(expected)
    strange = sorted(found.keys() ^ asked.keys())
    if strange:
        some = ", ".join(name[:60] for name in strange[:3]) + " …" * (len(strange) > 3)
        raise Refused(f"uploaded other entries than were asked for: {some}")
    for name, tensor in asked.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            is_, should = (f"{t.dtype} {tuple(t.shape)}" for t in (found[name], tensor))
            raise Refused(f"uploaded {name} as {is_}, not {should}")
    # In the order of our own: sums over entries depend on it in the last bits.
    return {r: {n: found[f"{r}/{n}"] for n in params} for r, params in expected.items()}


def read_figures(reply: Reply, classes: int, known_rows: int) -> dict[str, Any]:
    """Reads what a node says of its own model: shares from 0 to 1, and little else."""
    if reply.report.error:
        raise Refused(reply.report.error[:LONGEST])
    try:
        tree = json.loads(reply.report.facts)
        told = dict(leaves(tree))
        rows, owned = told.pop("rows"), told.pop("classes")
        remarks, confusion = told.pop("remarks", []), told.pop("confusion", None)
        told.pop("client", None)
        sound = set(tree) <= FIGURES and "accuracy" in tree and rows == known_rows
        sound &= _are_classes(owned, classes) and _are_remarks(remarks)
        sound &= _are_counts(confusion, classes)
        sound &= all(_is_figure(name, value) for name, value in told.items())
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"its figures cannot be read: {error!r}"[:LONGEST]) from None
    if not sound:
        raise Refused("its figures are none")
    figures: dict[str, Any] = tree
    return figures


def _is_figure(name: str, value: Any) -> bool:
    """Whether a number can be the one of this name; all are shares but a few."""
    if value is None:
        return True
    if type(value) not in (int, float) or not math.isfinite(value):
        return False
    last = name.rpartition(".")[2]
    return bool(0 <= value <= LIMITS.get(last, 1.0 + 1e-9))


def _are_classes(owned: Any, classes: int) -> bool:
    if owned is None:
        return True
    whole = isinstance(owned, list) and all(type(c) is int and 0 <= c < classes for c in owned)
    return whole and len(set(owned)) == len(owned)


def _are_remarks(remarks: Any) -> bool:
    """Whether these are a few texts, none of them long."""
    few = isinstance(remarks, list) and len(remarks) <= MOST
    return few and all(isinstance(text, str) and len(text) <= LONGEST for text in remarks)


def _are_counts(table: Any, classes: int) -> bool:
    """Whether this is a table of counts, a row and a column a class; or nothing."""
    if table is None:
        return True
    if not isinstance(table, list) or len(table) != classes:
        return False
    if not all(isinstance(row, list) and len(row) == classes for row in table):
        return False
    return all(type(n) is int and 0 <= n < LARGEST for row in table for n in row)
