"""Uploads at the border: a node may send anything, and only what was asked for comes in."""

import json
import math
from typing import Any

from flwr.app import RecordDict

from fedpn.core.settings import leaves
from fedpn.core.trees import Slots, flatten, stack
from fedpn.flower.app.records import unpack
from fedpn.flower.app.roster import Reply

MOST, LONGEST, LARGEST = 20, 400, 2**53  # remarks, their letters, rows of a class


class Refused(Exception):  # noqa: N818
    """Why an upload does not count."""


def read_upload(content: RecordDict, expected: Slots | None) -> tuple[Slots, Slots]:
    """Reads an upload that has the names, shapes and types expected; stacked, as one of many.

    Where nothing is expected, this one is what others are held to. The form is returned as well.
    """
    try:
        slots = unpack(content, tuple(expected or ()))
        found = flatten(slots)
    except Exception as error:
        raise Refused(f"uploaded what cannot be read: {error}") from None
    expected = slots if expected is None else expected
    asked = flatten(expected)
    strange = sorted(found.keys() ^ asked.keys())
    if strange:
        some = ", ".join(strange[:3]) + " …" * (len(strange) > 3)
        raise Refused(f"uploaded other entries than were asked for: {some}")
    for name, tensor in asked.items():
        if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            is_, should = (f"{t.dtype} {tuple(t.shape)}" for t in (found[name], tensor))
            raise Refused(f"uploaded {name} as {is_}, not {should}")
    # In the order of our own: sums over entries depend on it in the last bits.
    ordered = {r: {n: found[f"{r}/{n}"] for n in params} for r, params in expected.items()}
    return stack([ordered]), expected


def read_figures(reply: Reply, classes: int) -> dict[str, Any]:
    """Reads what a node says of its own model: a tree of finite numbers, or of none."""
    if reply.report.error:
        raise Refused(reply.report.error)
    try:
        tree = json.loads(reply.report.facts)
        told = dict(leaves(tree))
        rows, owned = told.pop("rows"), told.pop("classes")
        remarks, confusion = told.pop("remarks", []), told.pop("confusion", None)
        numbers = [value for value in told.values() if value is not None]
        sound = "accuracy" in tree and isinstance(rows, int) and isinstance(owned, list | None)
        sound &= _are_remarks(remarks) and _are_counts(confusion, classes)
    except (ValueError, AttributeError, KeyError) as error:
        raise Refused(f"its figures cannot be read: {error!r}") from None
    if not sound or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise Refused("its figures are none")
    figures: dict[str, Any] = tree
    return figures


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
