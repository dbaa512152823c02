"""Text files of tables -> columns, whole or part by part."""

import codecs
import csv
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from fedpn.core.errors import UserError
from fedpn.core.plain import composed
from fedpn.data.sources.guard import plain_file, reason, short, some

LARGEST = 1 << 30  # bytes of a table
LINE = 1 << 24  # characters of a line
CHUNK = 1 << 20  # bytes that are looked at at once
SEPARATORS = ",;\t|"
MARKS = {  # bytes that files of a kind begin with
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OLD = "cp1252"  # what Windows and its programs write where it is not Unicode


class Table(NamedTuple):
    columns: dict[str, Sequence[Any]]
    place: Callable[[int], str]  # a row's number -> how the user finds it
    remarks: tuple[str, ...] = ()


def read_csv(path: Path) -> Table:
    """Reads commas, semicolons, tabs or bars, whichever splits the first line into most columns."""
    for table in csv_parts(path):
        return table
    raise UserError(f"{path} has no rows below its first line; add some")


def csv_parts(path: Path, rows: int | None = None) -> Iterator[Table]:
    """The same, so many rows at a time; all at once where no number is given."""
    plain_file(path, LARGEST)
    try:
        letters = encoding_of(path)
        remarks = (f"{path} is no Unicode: it was read as {OLD}",) if letters == OLD else ()
        with path.open(encoding=letters, newline="") as file:
            text = _lines(path, file)
            separator, first, above = _separator(text)
            reader = csv.reader(itertools.chain([first], text), delimiter=separator)
            names = _names(path, next(reader, []))
            numbered = ((reader.line_num + above, row) for row in reader if any(row))
            while part := list(itertools.islice(numbered, rows)):
                yield _table(path, names, part, remarks)
    except (UnicodeError, OSError) as error:
        raise UserError(
            f"{path} is not a table as text ({reason(error)}); save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise UserError(
            f"{path} cannot be read from line {reader.line_num} on ({error}); is a quote not "
            "closed?"
        ) from error


def encoding_of(path: Path) -> str:
    """How a file's letters are written: by its first bytes, as UTF-8 if it can be, or as of old."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        head = file.read(CHUNK)
        marked = next((kind for mark, kind in MARKS.items() if head.startswith(mark)), "")
        if marked:
            return marked
        if b"\0" in head:
            raise UserError(
                f"{path} is not a table as text (it holds zero bytes); save it as UTF-8"
            )
        try:
            while head:
                decoder.decode(head)
                head = file.read(CHUNK)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return OLD
    return "utf-8"


def _separator(text: Iterator[str]) -> tuple[str, str, int]:
    """The sign between columns, the line of their names, and how many lines are above that: some
    programs tell the sign there."""
    first = next(text, "")
    told = re.fullmatch(r"sep=(.)", first.strip())
    if told:
        return told[1], next(text, ""), 1
    bare = re.sub(r'"[^"]*"', "", first)  # what is quoted parts nothing
    return max(SEPARATORS, key=bare.count), first, 0


def _names(path: Path, row: Sequence[str]) -> list[str]:
    """Names of columns; one that has none is called by its place, as an index has none."""
    names = [composed(name.strip()) for name in row]
    if any(names):
        names = [name or f"unnamed {place}" for place, name in enumerate(names, 1)]
    check_names(path, names)
    return names


def _table(
    path: Path, names: Sequence[str], numbered: Sequence[tuple[int, Any]], remarks: tuple[str, ...]
) -> Table:
    ragged = [(line, len(row)) for line, row in numbered if len(row) != len(names)]
    if ragged:
        line, values = ragged[0]
        others = some([str(other) for other, _ in ragged[1:]])
        also = f" (lines {others} are not right either)" if others else ""
        raise UserError(
            f"line {line} of {path} has {values} values and the first line names "
            f"{len(names)} columns{also}; is a separator missing?"
        )
    lines = [line for line, _ in numbered]
    columns = zip(*(row for _, row in numbered), strict=True)
    place = lambda row: f"line {lines[row]} of {path}"  # noqa: E731
    return Table(dict(zip(names, columns, strict=True)), place, remarks)


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """Never holds more of a line than a table has use for."""
    for number, line in enumerate(iter(lambda: file.readline(LINE + 1), ""), 1):
        if len(line) > LINE:
            raise UserError(
                f"line {number} of {path} has more than {LINE} characters; are its lines parted?"
            )
        yield line


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuses columns that cannot be told apart."""
    if not names or not all(names):
        raise UserError(f"the first line of {path} does not name every column; add the names")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{path} has two columns named {short(twice)!r}; rename one of them")
