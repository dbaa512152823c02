"""Rows of measured tables by method: what docs/measured.md gains, the page of methods gains."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from making.links import ROOT

TABLE = re.compile(r"(?:^\|.*\|$\n?)+", re.MULTILINE)
BOLD = re.compile(r"\*\*(.*?)\*\*")


class Row(NamedTuple):
    """A line of a table that speaks of one method, with the heads of its cells."""

    page: str
    table: int  # the number of its table on the page
    heads: tuple[str, ...]
    cells: tuple[str, ...]


def tables(text: str) -> list[list[list[str]]]:
    """All tables of a page, as cells.

    >>> tables("a\\n\\n| x | y |\\n| --- | --- |\\n| 1 | **2** |\\n")
    [[['x', 'y'], ['1', '2']]]
    """
    found = []
    for block in TABLE.findall(text):
        lines = [_cells(line) for line in block.strip().splitlines()]
        found.append([line for line in lines if not set("".join(line)) <= set("-: ")])
    return found


def _cells(line: str) -> list[str]:
    return [BOLD.sub(r"\1", cell.strip()) for cell in line.strip()[1:-1].split("|")]


def is_of(cell: str, title: str) -> bool:
    """Whether a cell names a method, or one of its forms.

    >>> is_of("FedAvg, BatchNorm", "FedAvg"), is_of("FedAvgM", "FedAvg")
    (True, False)
    """
    return re.match(rf"{re.escape(title)}(?![\w-])", cell) is not None


def rows_of(title: str, page: str = "measured.md") -> Iterator[Row]:
    """What a page has of a method: its lines, and its columns turned into lines."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for number, (head, *body) in enumerate(tables(text)):
        for line in body:
            if is_of(line[0], title):
                yield Row(page, number, tuple(head), tuple(line))
        for place, name in enumerate(head[1:], start=1):
            if is_of(name, title):
                heads = (head[0], *(line[0] for line in body))
                yield Row(page, number, heads, (name, *(line[place] for line in body)))
