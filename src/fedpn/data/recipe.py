"""How the columns of a table become numbers: learned once, then the same for every row.

Missing values are filled in by the median, or the most frequent value, beside a column that tells
that they were missing; categories become a column each, those that are rare or new "another"; what
tells nothing is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from fedpn.core.bounds import Bounds
from fedpn.core.errors import UserError
from fedpn.core.settings import build
from fedpn.data.cells import Array, Kind, as_days, as_numbers, buckets

MOST_BITS = 32  # of a value's bucket
Bucket = Annotated[int, Bounds(low=0, high=(1 << MOST_BITS) - 1)]
LARGEST = float(np.finfo(np.float32).max)
OTHER, MISSING = "another", "is missing"


@dataclass(frozen=True)
class Written:
    """How one client writes a column, where others write it otherwise."""

    client: str
    decimal: str = ""
    day_first: str = ""


@dataclass(frozen=True)
class Column:
    """What is made of one column.

    How its numbers and dates are written, and what its values are called, each client knows for
    itself; "" where its rows hold nothing that could be read in two ways.
    """

    name: str
    kind: Literal["number", "boolean", "date", "category"]
    fill: Annotated[float, "what stands for a missing value; of a category, its place"] = 0.0
    missing: Annotated[bool, "whether a column tells that it was missing"] = False
    values: Annotated[tuple[Bucket, ...], "of a category, by their buckets"] = ()
    other: Annotated[bool, "of a category, whether a column stands for all other values"] = False
    text: Annotated[bool, "of a category, whether numbers are names as they are written"] = False
    names: tuple[str, ...] = ()
    decimal: str = ""
    day_first: str = ""
    clients: tuple[Written, ...] = ()

    @property
    def is_category(self) -> bool:
        return self.kind == "category"

    def written(self, value: float) -> float | str:
        """A number as people would write it: of a date, its day."""
        if self.kind != "date":
            return value
        return str(np.datetime64(0, "D") + int(np.clip(value // 1, -700_000, 2_900_000)))

    @property
    def usual(self) -> float | str:
        """What stands for a missing value, as people would write it."""
        return self.spelled[int(self.fill)] if self.is_category else self.written(self.fill)

    @property
    def spelled(self) -> tuple[str, ...]:
        """The values of a category by name, or by number where no name is known."""
        return self.names or tuple(f"#{value}" for value in self.values)


@dataclass(frozen=True)
class LeftOut:
    """A column that is not used."""

    name: str
    why: str


@dataclass(frozen=True)
class Recipe:
    """All columns that are used, in their order, and why others are not."""

    columns: tuple[Column, ...]
    left_out: tuple[LeftOut, ...] = ()
    bits: Annotated[int, Bounds(low=1, high=MOST_BITS)] = MOST_BITS

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table that are needed."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """What each number of a prepared row is."""
        plain = [column for column in self.columns if not column.is_category]
        told = [c.name for c in plain] + [f"{c.name} {MISSING}" for c in plain if c.missing]
        for column in self.columns:
            if column.is_category:
                more = [OTHER] * column.other + [MISSING] * column.missing
                told += [f"{column.name} = {name}" for name in column.spelled]
                told += [f"{column.name} {name}" for name in more]
        return tuple(told)

    @property
    def width(self) -> int:
        """How many numbers a prepared row has."""
        return sum(max(len(c.values), 1) + c.other + c.missing for c in self.columns)

    def __call__(self, cells: Array) -> Array:  # [N, columns] -> float32 [N, width]
        """Prepares rows whose cells are in the order of the columns."""
        plain = [i for i, column in enumerate(self.columns) if not column.is_category]
        parts = [self._plain(cells[:, plain], [self.columns[i] for i in plain])] if plain else []
        for i, column in enumerate(self.columns):
            if column.is_category:
                parts.append(self._category(cells[:, i], column))
        return np.concatenate(parts, axis=1)

    def told(self, row: Array) -> list[float | str | None]:  # [width]
        """What a prepared row says of each column: a number, a name, a day, or None where it was
        missing; a value that had no column of its own is "another"."""
        numbers = iter(row.tolist())
        plain = [column for column in self.columns if not column.is_category]
        said: dict[str, float | str | None] = {c.name: c.written(next(numbers)) for c in plain}
        said |= {c.name: None for c in plain if c.missing and next(numbers)}
        for column in self.columns:
            if column.is_category:
                hits = [next(numbers) for _ in column.values]
                other, gone = (
                    bool(has and next(numbers)) for has in (column.other, column.missing)
                )
                found = (name for name, hit in zip(column.spelled, hits, strict=True) if hit)
                said[column.name] = None if gone else OTHER if other else next(found, OTHER)
        return [said[column.name] for column in self.columns]

    def _plain(self, cells: Array, columns: Sequence[Column]) -> Array:
        is_date = np.array([column.kind == "date" for column in columns])
        values = np.where(is_date, as_days(cells), as_numbers(cells))
        lacking = ~np.isfinite(values)
        known = np.array([column.missing for column in columns])
        filled = np.where(lacking, np.array([column.fill for column in columns]), values)
        # Something else where there never was a gap: that row is like nothing that was seen.
        filled[lacking & ~known & (cells["kind"] != Kind.MISSING)] = np.nan
        return np.concatenate([filled, lacking[:, known]], axis=1, dtype=np.float32)

    def _category(self, cells: Array, column: Column) -> Array:
        lacking = cells["kind"] == Kind.MISSING
        known = np.array(column.values, np.int64)
        found = buckets(cells["value"], self.bits)
        found[lacking] = known[int(column.fill)]
        hits = found[:, None] == known
        parts = [hits]
        if column.other:
            parts.append(~hits.any(axis=1, keepdims=True))
        if column.missing:
            parts.append(lacking[:, None])
        return np.concatenate(parts, axis=1, dtype=np.float32)


class Style(NamedTuple):
    """How a column's numbers and dates are written, where that is known."""

    decimal: str = ""
    day_first: str = ""
    clients: tuple[Written, ...] = ()


def odd_cells(cells: Array, recipe: Recipe, words: Mapping[float, str]) -> Iterator[str]:
    """Tells of cells, in the order of the columns, that are not what their column is."""
    kinds = cells["kind"]
    numbers = np.isin(kinds, (Kind.MISSING, Kind.NUMBER, Kind.YES, Kind.NO))
    dates = np.isin(kinds, (Kind.MISSING, Kind.DATE))
    for place, column in enumerate(recipe.columns):
        odd = np.flatnonzero(~(dates if column.kind == "date" else numbers)[:, place])
        if column.is_category or not len(odd):
            continue
        text = words.get(float(cells["value"][odd[0], place]), "")
        such = f", such as {text[:40]!r}," if text else ""
        then = "count as missing" if column.missing else "make their rows strangers"
        yield f"{column.name!r}: {len(odd)} cells that are no {column.kind}{such} {then}"


def know(recipe: Recipe, words: Mapping[float, str], styles: Mapping[str, Style]) -> Recipe:
    """The same with what a client knows of its own table: words for values, ways of writing."""
    spelled = dict(words)
    values = np.array(list(spelled), np.float64)
    texts = dict(zip(buckets(values, recipe.bits).tolist(), spelled.values(), strict=True))
    columns = []
    for column in recipe.columns:
        names: tuple[str, ...] = ()
        if column.is_category:
            old = dict(zip(column.values, column.spelled, strict=True))
            names = tuple(texts.get(value, old[value]) for value in column.values)
            names = names if len(set(names)) == len(names) else ()
        now = styles.get(column.name, Style(clients=column.clients))
        decimal, day_first = now.decimal or column.decimal, now.day_first or column.day_first
        written = {"decimal": decimal, "day_first": day_first, "clients": now.clients}
        columns.append(replace(column, names=names, **written))  # type: ignore[arg-type]
    return replace(recipe, columns=tuple(columns))


def of_client(recipe: Recipe, client: str) -> Recipe:
    """The same for one client: columns as it writes them."""
    columns = []
    for column in recipe.columns:
        ways = (way for way in column.clients if way.client == client)
        own: Written | Column = next(ways, column)
        columns.append(replace(column, decimal=own.decimal, day_first=own.day_first, clients=()))
    return replace(recipe, columns=tuple(columns))


def read_recipe(tree: Any) -> Recipe:
    """Reads a recipe from plain values that may come from anybody."""
    recipe = build(Recipe, tree, "recipe")
    if not recipe.columns or len(set(recipe.names)) < len(recipe.columns):
        raise UserError("the preparation of columns names none, or one twice")
    for column in recipe.columns:
        _check(column, recipe.bits)
    return recipe


def _check(column: Column, bits: int) -> None:
    """Refuses a column whose parts do not fit together."""
    places = len(column.values)
    ways: list[Column | Written] = [column, *column.clients]
    wrong = {
        "has values that are none of its kind": column.is_category != bool(places),
        "does not name all of its values": len(column.names) not in (0, places),
        "has a value beyond its bits": any(value >= 1 << bits for value in column.values),
        "has a value twice": len(set(column.values)) < places,
        "fills in what is none of its values": column.is_category
        and column.fill not in range(places),
        "fills in what is too large": abs(column.fill) > LARGEST,
        "is written in no known way": any(
            way.decimal not in ("", ".", ",") or way.day_first not in ("", "yes", "no")
            for way in ways
        ),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise UserError(f"the column {column.name!r} {what}")
