"""Values out of a file, checked as they are read: a file may be damaged, or made to do harm."""

import json
import math
import reprlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fedpn.core import store
from fedpn.core.plain import plain

T = TypeVar("T")
LARGEST = 1e30  # no figure of a run is larger, and drawing fails near the largest float
MOST = 10**12  # no count is larger


class Value:
    """A value, and where it stands in which file, for the message if it is not as it must be."""

    def __init__(self, value: Any, file: Path, place: str = "") -> None:
        self.value, self.file, self.place = value, file, place

    def damaged(self, wanted: str) -> store.Damaged:
        """The error to raise: the value is not what is wanted."""
        place = f"{self.place} is" if self.place else "it holds"
        shown = plain(reprlib.repr(self.value))
        return store.Damaged(f"{self.file} is damaged: {place} {shown}, not {wanted}")

    def fields(self) -> dict[str, "Value"]:
        """The fields of an object, by name."""
        if not isinstance(self.value, dict):
            raise self.damaged("an object")
        return {plain(str(name)): self._inside(v, name) for name, v in self.value.items()}

    def __getitem__(self, name: str) -> "Value":
        """A field of an object; null where it has none of that name."""
        if not isinstance(self.value, dict):
            raise self.damaged("an object")
        return self._inside(self.value.get(name), name)

    def items(self, length: int | None = None) -> list["Value"]:
        """The items of a list, of the given length if there is one."""
        if not isinstance(self.value, list):
            raise self.damaged("a list")
        if length is not None and len(self.value) != length:
            raise self.damaged(f"a list of {length}")
        return [Value(v, self.file, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def optional(self, read: Callable[["Value"], T]) -> T | None:
        """What is read from the value; None where it is null."""
        return None if self.value is None else read(self)

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.damaged("a number")
        if abs(self.value) > LARGEST or math.isnan(self.value):
            raise self.damaged("a finite number")
        return float(self.value)

    def numbers(self, length: int | None = None) -> list[float]:
        """A list of finite numbers."""
        return [item.number() for item in self.items(length)]

    def whole(self, below: int = MOST) -> int:
        """A whole number from 0 to below a bound."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.damaged("a whole number")
        if not 0 <= self.value < below:
            raise self.damaged(f"a whole number from 0 to {below - 1}")
        return self.value

    def text(self) -> str:
        """A text; its control characters are replaced by their visible form."""
        if not isinstance(self.value, str):
            raise self.damaged("a text")
        return plain(self.value)

    def texts(self) -> tuple[str, ...]:
        """A list of texts, at least one."""
        found = tuple(item.text() for item in self.items())
        if not found:
            raise self.damaged("a list of one text or more")
        return found

    def _inside(self, value: Any, name: object) -> "Value":
        name = plain(str(name))
        return Value(value, self.file, f"{self.place}.{name}" if self.place else name)


def read_json(path: Path) -> Value:
    """The content of a JSON file."""
    return Value(store.read_json(path), path)


def read_json_lines(path: Path) -> list[Value]:
    """The content of a file with one JSON value a line."""
    found = []
    for number, line in enumerate(store.read_text(path).splitlines(), 1):
        try:
            found.append(Value(json.loads(line), path, f"line {number}"))
        except (ValueError, RecursionError):
            raise store.Damaged(f"{path} is damaged in line {number}") from None
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    content = store.read_text(path)
    try:
        return tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise store.Damaged(f"{path} is damaged: {error}") from None
