"""Figures at the border: what a node says of its own model, and whether it can be."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedpn.core.settings import leaves
from fedpn.flower.app.roster import Reply
from fedpn.flower.app.uploads import Refused
from fedpn.runs.config import Config
from fedpn.runs.measure import bring_together
from fedpn.runs.pipeline import score_of

Tree = dict[str, Any]
MOST, LONGEST, LARGEST = 20, 400, 10**9  # remarks, their letters, rows of a class
FIGURES = {
    *("client", "classes", "rows", "accuracy", "routing", "abstention", "streams", "apart"),
    *("classes_found", "confusion", "calibration", "remarks", "promise", "sets"),
}
LIMITS = {"nll": 1e4, "brier": 2.0, "rows": 2.0**53, "size": 2.0**16}  # those that are no shares
OTHER = "its figures are other ones than were asked for"


def read_figures(reply: Reply, classes: int, known_rows: int) -> Tree:
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
    figures: Tree = tree
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


def hold_to_most(figures: Mapping[str, Tree], config: Config) -> dict[str, str]:
    """Who tells other figures than most do, or such as come to nothing: their mean would fail."""
    forms = {name: _form(tree) for name, tree in figures.items() if _adds_up(tree, config)}
    most = Counter(forms.values()).most_common(1)
    return {name: OTHER for name in figures if name not in forms or forms[name] != most[0][0]}


def _form(tree: Tree) -> frozenset[str]:
    return frozenset(name for name, _ in leaves(tree) if name not in ("remarks", "confusion"))


def _adds_up(tree: Tree, config: Config) -> bool:
    """Whether a run could be told by these figures alone."""
    try:
        told = bring_together([tree | {"client": 0}], score_of(config), config.headline)
        json.dumps(told, allow_nan=False)
    except Exception:  # whatever they lack
        return False
    return True
