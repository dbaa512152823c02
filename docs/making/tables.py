"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text that stays within its cell.

    >>> cell("a | b")
    'a &#124; b'
    """
    return " ".join(text.split()).replace("|", "&#124;").replace("<", "&lt;")


def code(text: str) -> str:
    """Code that stays within its cell; nothing where there is none.

    >>> code("a | b"), code("")
    ('`a | b`', '')
    """
    return f"`{' '.join(text.split())}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
