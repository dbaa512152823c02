"""The ledger as one self-contained page."""

import re
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from fedpn_paper import verdict
from fedpn_paper.ledger_markdown import signed
from fedpn_paper.tables import Entry, Table

if TYPE_CHECKING:
    from fedpn_paper.ledger import Book, Figure

KINDS = {
    verdict.REPRODUCED: "yes",
    verdict.IN_PART: "partly",
    verdict.MOSTLY_NOT: "no",
    verdict.NOT: "no",
    verdict.NOT_RUN: "unknown",
}


def render(book: "Book") -> str:
    """Fills the template."""
    template = resources.files("fedpn_paper") / "templates" / "ledger.html"
    parts = {
        "verdicts": _verdicts(book.verdicts),
        "tables": "".join(map(_section, book.tables)),
        "notes": _bullets(book.notes),
        "slips": _bullets(book.slips),
        "figures": "".join(map(_figure, book.figures)),
        "wrong": _wrong(book.wrong),
    }
    page = template.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)


def _verdicts(verdicts: list[verdict.Verdict]) -> str:
    return "".join(
        f'<article class="{KINDS[v.verdict]}"><b>{escape(v.verdict)}</b>'
        f"<div><strong>{escape(v.claim)}</strong><p>{escape(v.why)}{_see(v)}</p></div></article>"
        for v in verdicts
    )


def _see(v: verdict.Verdict) -> str:
    return f' <a href="#{v.figure}">Figure</a>' if v.figure else ""


def _section(table: Table) -> str:
    if not table.rows:
        return ""
    kinds = [" class=words" * _is_words(cell) for cell in table.rows[0].cells]
    names = zip(kinds, table.columns, strict=True)
    head = "<th></th>" + "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in names)
    body = "".join(
        f"<tr><td>{escape(row.name)}</td>{''.join(map(_cell, row.cells))}</tr>"
        for row in table.rows
    )
    return (
        f"<section><h2>{escape(table.title)}</h2><p>{escape(table.lead)}</p><div class=wide>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _is_words(entry: Entry | str) -> bool:
    return isinstance(entry, str) and any(letter.isalpha() for letter in entry)


def _cell(entry: Entry | str) -> str:
    if isinstance(entry, str):
        return f"<td{' class=words' * _is_words(entry)}>{escape(entry)}</td>"
    ours = "–" if entry.ours is None else escape(str(entry.ours))
    paper = "" if entry.paper is None else f"{entry.paper:.1f}"
    if entry.difference is not None:
        paper += f" <i>{signed(entry.difference)}</i>"
    best = " class=best" if entry.best else ""
    return f"<td{best}>{ours}<small>{paper}</small></td>"


def _figure(figure: "Figure") -> str:
    # Two figures on one page must not share the names of their parts.
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\1{figure.name}-", figure.svg)
    return (
        f'<figure id={figure.name} aria-label="{escape(figure.title)}">{svg}'
        f"<figcaption>{escape(figure.text)}</figcaption></figure>"
    )


def _wrong(wrong: dict[str, str]) -> str:
    if not wrong:
        return ""
    lines = [f"{name}: {words}" for name, words in wrong.items()]
    return f"<h2>What failed</h2>{_bullets(lines)}"


def _bullets(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
