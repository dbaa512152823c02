"""Tables for a terminal."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """Lines of a table: the first columns, which are texts, flush left, and numbers flush right.

    >>> aligned([["", "rows"], ["north", "7"]])
    ['       rows', 'north     7']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
