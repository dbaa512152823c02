"""Strangers let through while 95 % of known rows pass: what `benchmarks/strangers.py` kept."""

from typing import Any

import numpy as np

from fedpn_paper.grid import title_of
from fedpn_paper.ledger_markdown import grid

Tree = dict[str, Any]
MADE = ("noise", "constant", "inverted", "shuffled", "gaussian")
BACK = "resized there and back"


def by_kind(kept: Tree) -> str:
    """The gate, kind by kind; other sets by their mean."""
    head = ["known set", "known rows kept", *MADE, "other sets, mean", "other sets, worst", BACK]
    rows = []
    for name in _sets(kept):
        found = _mean(kept, name, "gate")
        others = {kind: share for kind, share in found.items() if _is_set(kind)}
        worst = max(others, key=lambda kind: others[kind])
        rows.append(
            [
                title_of(name),
                _percent(found["known rows"]),
                *(_percent(found[kind]) for kind in MADE),
                _percent(float(np.mean(list(others.values())))),
                f"{_percent(others[worst])} ({title_of(worst)})",
                _percent(found[BACK]),
            ]
        )
    return grid(head, rows)


def by_score(kept: Tree) -> str:
    """The gate beside a model's own scores: all made kinds, and all other sets."""
    scores = list(next(iter(kept.values())))
    head = ["known set", *(f"{score}: made / other sets" for score in scores)]
    rows = []
    for name in _sets(kept):
        cells = []
        for score in scores:
            found = _mean(kept, name, score)
            made = np.mean([found[kind] for kind in MADE])
            others = np.mean([share for kind, share in found.items() if _is_set(kind)])
            cells.append(f"{_percent(float(made))} / {_percent(float(others))}")
        rows.append([title_of(name), *cells])
    return grid(head, rows)


def _sets(kept: Tree) -> list[str]:
    return list(dict.fromkeys(key.rpartition("-s")[0] for key in kept))


def _is_set(kind: str) -> bool:
    return kind not in (*MADE, BACK, "known rows")


def _mean(kept: Tree, name: str, score: str) -> dict[str, float]:
    """Shares, mean over seeds."""
    runs = [tree[score] for key, tree in kept.items() if key.rpartition("-s")[0] == name]
    return {kind: float(np.mean([run[kind] for run in runs])) for kind in runs[0]}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
