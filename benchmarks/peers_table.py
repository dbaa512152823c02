"""The tables of docs/measured.md about peers, from what `peers.py` wrote."""

from typing import Any

Tree = dict[str, Any]
SIDES = {"ours": "ours", "pfllib": "PFLlib", "flbench": "FL-bench"}
TITLES = {
    "fedavg": "FedAvg",
    "scaffold": "SCAFFOLD",
    "perfedavg": "Per-FedAvg, first order",
    "pfedme": "pFedMe",
    "ditto": "Ditto",
    "apfl": "APFL",
    "fedrep": "FedRep",
    "fedbabu": "FedBABU",
}


def table(results: Tree) -> str:
    """Accuracy of all sides after all rounds, in %, and how far weights then are apart."""
    models = [f"{who}, {side}" for who in ("personal", "global") for side in SIDES.values()]
    weights = [f"weights apart, {SIDES[peer]}" for peer in ("pfllib", "flbench")]
    lines = [["", *models, *weights]]
    for method, title in TITLES.items():
        found = results["methods"][method]
        shares = [
            found[side]["accuracy"].get(who) for who in ("personal", "global") for side in SIDES
        ]
        cells = ["–" if share is None else f"{100 * share:.1f}" for share in shares]
        far = [f"{most(found[peer]['apart']):.0e}" for peer in ("pfllib", "flbench")]
        lines.append([title, *cells, *far])
    return _lines(lines)


def reasons(results: Tree) -> str:
    """How far weights are apart in double precision, why, and what is left without that."""
    lines = [["", "", "apart", "without", "accuracy without, ours · theirs", "what differs"]]
    for method, title in TITLES.items():
        for peer in ("pfllib", "flbench"):
            found = results["methods"][method][peer]
            without = f"{most(found['without']):.0e}" if "without" in found else ""
            far = f"{most(found['exact']):.0e}"
            both = _both(found["agreed"]) if "agreed" in found else ""
            lines.append([title, SIDES[peer], far, without, both, found["differs"]])
    return _lines(lines)


def doubles(results: Tree) -> str:
    """Both sides in double precision after all rounds, where that was asked."""
    head = ["", "", "accuracy, ours · theirs", "weights apart"]
    asked = [
        (title, SIDES[peer], found["agreed_double"])
        for method, title in TITLES.items()
        for peer in ("pfllib", "flbench")
        if "agreed_double" in (found := results["methods"][method][peer])
    ]
    rows = [[title, side, _both(f), f"{most(f['apart']):.0e}"] for title, side, f in asked]
    return _lines([head, *rows])


def _both(found: Tree) -> str:
    ours, theirs = found["ours"], found["theirs"]
    return ", ".join(f"{who} {100 * ours[who]:.1f} · {100 * theirs[who]:.1f}" for who in ours)


def gaps(results: Tree) -> dict[tuple[str, str], float]:
    """The largest difference of accuracy from ours, in points, by method and peer."""
    return {
        (method, peer): max(
            100 * abs(share - found[peer]["accuracy"][who])
            for who, share in found["ours"]["accuracy"].items()
        )
        for method, found in results["methods"].items()
        for peer in ("pfllib", "flbench")
    }


def most(apart: dict[str, float]) -> float:
    """Of the personal and the global models' weights, those that are further apart."""
    return max(apart.values())


def _lines(cells: list[list[str]]) -> str:
    head, *rest = cells
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])
