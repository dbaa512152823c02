"""The ledger as Markdown."""

from typing import TYPE_CHECKING

from fedpn_paper.tables import Entry, Table

if TYPE_CHECKING:
    from fedpn_paper.ledger import Book


def render(book: "Book") -> str:
    """Verdicts first, then the tables, the slips, the figures in words."""
    parts = [
        "# The paper and what came out here",
        "What each table and figure of *Dirichlet-based Uncertainty Quantification for "
        "Personalized Federated Learning with Improved Posterior Networks* (Kotelevskii et al., "
        "2024) says, and what `fedpn paper` finds under one protocol. Accuracy in %.",
        "## Verdicts",
        grid(["claim", "verdict", "why"], [[v.claim, v.verdict, v.why] for v in book.verdicts]),
    ]
    for table in filter(lambda t: t.rows, book.tables):
        parts += [f"## {table.title}", table.lead, of_table(table)]
    parts += ["## How to read this", _bullets(book.notes)]
    parts += ["## Slips of the paper", _bullets(book.slips)]
    if book.figures:
        parts.append("## Figures")
    for figure in book.figures:
        parts += [f"### {figure.name}: {figure.title}", f"![{figure.title}]({figure.png})"]
        parts.append(figure.text)
    if book.wrong:
        parts.append("## What failed")
        parts.append(_bullets([f"{name}: {words}" for name, words in book.wrong.items()]))
    return "\n\n".join(parts) + "\n"


def of_table(table: Table) -> str:
    rows = [[row.name, *(cell(c) for c in row.cells)] for row in table.rows]
    return grid(["", *table.columns], rows)


def cell(entry: Entry | str) -> str:
    """Ours, then the paper's and the difference in brackets.

    >>> from fedpn_paper.results import Stat
    >>> cell(Entry(Stat(97.7, 0.1, 3), 98.3)), cell(Entry(None, 91.2)), cell(Entry())
    ('97.7 ± 0.1 (98.3, −0.6)', '– (91.2)', '–')
    """
    if isinstance(entry, str):
        return entry
    ours = "–" if entry.ours is None else str(entry.ours)
    if entry.best:
        ours = f"**{ours}**"
    if entry.paper is None:
        return ours
    if entry.difference is None:
        return f"{ours} ({entry.paper:.1f})"
    return f"{ours} ({entry.paper:.1f}, {signed(entry.difference)})"


def signed(value: float) -> str:
    """
    >>> signed(-0.61), signed(2.0), signed(-0.04)
    ('−0.6', '+2.0', '±0.0')
    """
    rounded = round(value, 1)
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "±0.0"


def grid(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
