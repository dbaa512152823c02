"""The page of methods: formula, citation, settings and measured rows of each algorithm."""

import inspect
import tomllib
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from fedpn.algorithms import ALGORITHMS
from fedpn.algorithms.base import FedAvg
from making.measured import rows_of
from making.tables import table

ABOUT: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
TITLES = {"measured.md": "Measured", "bayes.md": "Answers in closed form"}
INTRO = """# Methods

{count} algorithms, one file each in `src/fedpn/algorithms`, and each compared with an independent
loop that was written from its paper (`tests/oracles.py`, `tests/test_contract.py`). `fedpn run
--algorithm NAME` chooses one; any of them with a global model may have a [head in closed
form](bayes.md), and with a personal one beside it a [router](guides/router.md).

In formulas k is a client, n_k the number of its training rows (n of all), f_k its loss on a
batch, η its step, and w what the server holds. Means are weighted by rows; robust and private
ones take their place by `--set aggregation.rule=…`.

Figures below are lines of [Measured](measured.md), where protocol, seeds and budget are told:
**InD** are the client's own classes, **OOD** those that it has not, **Mix** half of each; in %.
"""


def page() -> str:
    """The page of methods."""
    parts = [INTRO.strip().format(count=len(ALGORITHMS)), overview()]
    parts += [section(name, kind) for name, kind in ALGORITHMS.items()]
    return "\n\n".join(parts) + "\n"


def overview() -> str:
    """All methods at a glance."""
    lines = [
        [f"[{about['title']}](#{name})", about["travels"], about["stays"], answers_by(name)]
        for name, about in ABOUT.items()
    ]
    return table(["method", "what travels", "what stays at home", "answers by"], lines)


def answers_by(name: str) -> str:
    """Whose figures stand for a run of a method where nothing else is said."""
    kind = ALGORITHMS[name]
    if kind.network == "posterior" or not kind.trains:
        return "Bayes' rule over both"
    return {"global": "the global model", "personal": "the personal model"}[kind.headline]


def section(name: str, kind: type[FedAvg]) -> str:
    """One method."""
    about = ABOUT[name]
    formula = "\n".join(line.rstrip() for line in about["formula"].strip().splitlines())
    said = inspect.getdoc(kind) or ""
    settings = f"[`[{name}]`](reference/settings.md#{name})" if has_settings(kind) else ""
    common = "[`[method]`](reference/settings.md#method)"
    facts = [
        f"*{about['reference']}*",
        f"**Travels:** {about['travels']}. **Stays:** {about['stays']}.",
        f"**Settings:** {' and '.join(filter(None, [settings, common]))}.",
    ]
    heading = f"## {about['title']} {{ #{name} }}"
    block = f"```text\n{formula}\n```"
    return "\n\n".join([heading, said, block, *facts, *measured(about)])


def has_settings(kind: type[FedAvg]) -> bool:
    """Whether a method has settings of its own, or other defaults than FedAvg."""
    own = inspect.get_annotations(kind).keys() & {f.name for f in fields(kind)}
    return kind is not FedAvg and bool(own)


def measured(about: dict[str, Any]) -> list[str]:
    """What was measured of a method, a table for each that speaks of it."""
    called, pages = about.get("called", about["title"]), about.get("pages", ["measured.md"])
    rows = [row for page in pages for row in rows_of(called, page)]
    found = []
    for (page, _, heads), group in groupby(rows, key=lambda row: row[:3]):
        head = [heads[0] or "accuracy, %", *heads[1:]]
        lines = [list(row.cells) for row in group]
        said = f"From [{TITLES[page]}]({page}):"
        found += [*([] if said in found else [said]), table(head, lines)]
    return found or ["Not in our tables yet."]
