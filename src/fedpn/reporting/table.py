"""A table of the page: texts, what its columns hold, and whose its rows are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """Cells; and which clients and classes they tell of, by number, so that rows can be filtered.

    None is "all of them".
    """

    cells: Sequence[str]
    clients: Iterable[int] | None = None
    classes: Iterable[int] | None = None
    is_headline: bool = False
    note: str = ""  # below the first cell
    shares: dict[int, float] = field(default_factory=dict)  # by column: how long its bar is
    style: str = ""  # of the bars

    def told(self) -> dict[str, str]:
        """Whose the row is, as attributes."""
        whose = {"clients": self.clients, "classes": self.classes}
        return {
            name: " ".join(map(str, numbers))
            for name, numbers in whose.items()
            if numbers is not None
        }


@dataclass(frozen=True)
class Table:
    """Rows below a head; the first columns hold texts, the others numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Row]
    texts: frozenset[int] = frozenset({0})  # columns of texts; all others are of numbers


def plain_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1
) -> Table:
    """A table whose rows are nobody's in particular, its first columns texts."""
    return Table(caption, head, [Row(cells) for cells in rows], frozenset(range(texts)))
