"""What a recipe is learned from: sums over rows, so that clients learn it together.

In three turns. The first counts what cells look like, and adds up numbers; from it all know each
column's kind. The second counts the values of categories by buckets and, for medians, numbers by
bins: a median is never farther from the mean than one standard deviation, so bins need no other
range. The third parts the buckets that are used, so that no two values share one.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedpn.core.errors import UserError
from fedpn.data.cells import Array, Kind, as_days, as_numbers, buckets
from fedpn.data.recipe import LARGEST, MOST_BITS, Column, LeftOut, Recipe

MOST_COLUMNS = 1 << 16
MOSTLY = 0.9  # a column is of a kind if so many of its values are; what is not counts as missing
RARE = 5  # rows: values that fewer have are "another", and nobody learns of them
MOST = 64  # values of a category
HALF = 0.5  # a category whose known values cover less is a text
BINS = 256
LEAST_BITS, FIRST_BITS = 8, 16  # of a bucket in the second turn
ROOM = 1 << 22  # numbers that the counts of all categories may take
SURE = 50  # values, all different, that make an identifier
IDENTIFIER = re.compile(
    r"(?i:(^|[\W_])(id|ids|uuid|guid|key|index|nr|no|number|mrn|unnamed)($|[\W_]))|Id$|ID$"
)


class Census(NamedTuple):
    """Sums of a first look; those of clients add up."""

    kinds: Array  # [F, kinds] cells that look like it
    total: Array  # [F, 2] of numbers, of dates
    squares: Array  # [F, 2]
    different: Array  # [F] whole numbers that are unlike all others of their client


def take_census(cells: Array) -> Census:  # [N, F]
    """Counts one client's rows."""
    kinds = np.stack([(cells["kind"] == kind).sum(0) for kind in Kind], 1)
    looks = [as_numbers(cells), as_days(cells)]
    # Along rows of memory NumPy sums by halves, which loses so little that what is constant shows.
    columns = [np.ascontiguousarray(look.T) for look in looks]
    return Census(
        kinds.astype(np.float64),
        np.stack([np.nansum(column, 1) for column in columns], 1),
        np.stack([np.nansum(np.square(column), 1) for column in columns], 1),
        _different(looks[0]).astype(np.float64),
    )


def is_sound(census: Census) -> bool:
    """Whether sums can be those of one client's rows."""
    with np.errstate(all="ignore"):  # what overflows is not sound
        return all(bool(part.all()) for part in _bounds(census))


def _bounds(census: Census) -> Iterator[Array]:
    rows = census.kinds.sum(1)
    most = rows[:, None] * LARGEST
    yield from (
        (census.kinds >= 0) & (census.kinds == np.round(census.kinds)),
        rows == rows[:1],
        rows < 1e15,
        np.abs(census.total) <= most,
        (census.squares >= 0) & (census.squares <= most * LARGEST),
        census.total**2 <= rows[:, None] * census.squares * (1 + 1e-9) + 1e-9,
        (census.different >= 0) & (census.different <= rows),
    )


def _different(numbers: Array) -> Array:  # [N, F] -> [F]
    """How many whole numbers occur once; 0 where not all are whole."""
    ordered = np.sort(numbers, axis=0)  # what is missing comes last
    edge = np.full((1, ordered.shape[1]), np.nan)
    steps = np.concatenate([edge, ordered, edge])
    alone = (steps[1:-1] != steps[:-2]) & (steps[1:-1] != steps[2:])
    told = np.isfinite(ordered)
    whole = (~told | (ordered == np.round(ordered))).all(0)
    return np.where(whole, (alone & told).sum(0), 0)


class Plan(NamedTuple):
    """What kind each column has; "" where it is left out, for a reason."""

    kinds: tuple[str, ...]
    reasons: tuple[str, ...]
    mean: Array  # [F] of numbers, or of dates
    spread: Array  # [F]
    named: frozenset[str] = frozenset()  # columns whose numbers are names

    @property
    def categories(self) -> list[int]:
        return [i for i, kind in enumerate(self.kinds) if kind == "category"]

    @property
    def measured(self) -> list[int]:
        return [i for i, kind in enumerate(self.kinds) if kind and kind != "category"]

    @property
    def bits(self) -> int:
        """Of a value's bucket: as many as there is room for."""
        room = ROOM // max(1, len(self.categories))
        return max(LEAST_BITS, min(FIRST_BITS, room.bit_length() - 1))


def plan(census: Census, names: Sequence[str], categories: Collection[str] = ()) -> Plan:
    """Tells each column's kind; columns of numbers that are named as categories are such."""
    counts = census.kinds
    told = counts.sum(1) - counts[:, Kind.MISSING]
    numbers = counts[:, [Kind.NUMBER, Kind.YES, Kind.NO]].sum(1)
    said = counts[:, [Kind.YES, Kind.NO]].sum(1)
    if len(names) > MOST_COLUMNS:
        raise UserError(f"{len(names)} columns that are not all numbers; name those to use")
    is_date = (counts[:, Kind.DATE] >= MOSTLY * told) & (told > 0)
    # Yes and no beside other words are names; numbers beside a few are numbers all the same.
    words = (said > 0) & (counts[:, Kind.TEXT] > 0)
    is_number = (numbers >= MOSTLY * told) & (told > 0) & ~words
    look = is_date.astype(np.int64)[:, None]
    count = np.maximum(np.where(is_date, counts[:, Kind.DATE], numbers), 1)
    mean = np.take_along_axis(census.total, look, 1)[:, 0] / count
    square = np.take_along_axis(census.squares, look, 1)[:, 0] / count
    variance = square - mean**2
    # What a sum of squares loses to rounding is no spread.
    spread = np.sqrt(np.where(variance > 1e-14 * square, variance, 0))
    alone = (census.different >= told) & (told >= SURE)
    kinds, reasons = [], []
    for i, name in enumerate(names):
        forced = name in categories
        kind = "date" if is_date[i] else "boolean" if said[i] >= MOSTLY * told[i] else "number"
        kind = kind if (is_date[i] or is_number[i]) and not forced else "category"
        reason = ""
        if not told[i]:
            reason = "it has no values"
        elif kind != "category" and not spread[i]:
            reason = "it has one value only"
        elif kind == "number" and alone[i] and IDENTIFIER.search(name):
            reason = "it is an identifier: another number in every row"
        kinds.append("" if reason else kind)
        reasons.append(reason)
    return Plan(tuple(kinds), tuple(reasons), mean, spread, frozenset(categories))


class Values(NamedTuple):
    """Sums of a second look, of the columns that are used."""

    texts: Array  # [categories, 2^bits] rows that have a value
    bins: Array  # [measured, BINS + 1] numbers below each bin's lower end


def count_values(cells: Array, plan: Plan) -> Values:
    """Counts one client's rows."""
    categories, bits = plan.categories, plan.bits
    found = np.zeros((len(categories), 1 << bits))
    for place, i in enumerate(categories):
        there = cells[:, i][cells["kind"][:, i] != Kind.MISSING]
        found[place] = np.bincount(buckets(there["value"], bits), minlength=1 << bits)
    measured = plan.measured
    part, edges = cells[:, measured], _edges(plan)
    is_date = np.array([plan.kinds[i] == "date" for i in measured], bool)
    numbers = np.where(is_date, as_days(part), as_numbers(part))
    ordered = np.sort(numbers, axis=0)
    below = [np.searchsorted(ordered[:, j], edges[j]) for j in range(len(measured))]
    return Values(found, np.array(below, np.float64).reshape(len(measured), BINS + 1))


def _edges(plan: Plan) -> Array:  # [measured, BINS + 1]
    """One standard deviation around the mean, in even bins."""
    steps = np.linspace(-1, 1, BINS + 1)
    measured = plan.measured
    return plan.mean[measured, None] + plan.spread[measured, None] * steps


def make_recipe(
    names: Sequence[str], census: Census, plan: Plan, values: Values, rare: int = RARE
) -> Recipe:
    """What all clients do with their columns, from the sums of all."""
    told = census.kinds.sum(1) - census.kinds[:, Kind.MISSING]
    columns: dict[int, Column] = {}
    left_out = [LeftOut(n, why) for n, why in zip(names, plan.reasons, strict=True) if why]
    for i, fill in zip(plan.measured, _medians(census, plan, values), strict=True):
        usable = _usable(census.kinds[i], plan.kinds[i])
        lacking = bool(usable < census.kinds[i].sum())
        columns[i] = Column(names[i], plan.kinds[i], fill, lacking)  # type: ignore[arg-type]
    for place, i in enumerate(plan.categories):
        column, why = _category(names[i], values.texts[place], told[i], rare)
        if column is None:
            numbers = 100 * _usable(census.kinds[i], "number") / max(told[i], 1)
            if numbers >= 100 * HALF and names[i] not in plan.named:
                why = f"only {numbers:.0f} % of its cells are numbers: write the others so"
            left_out.append(LeftOut(names[i], why))
            continue
        lacking = bool(census.kinds[i, Kind.MISSING])
        columns[i] = replace(column, missing=lacking, text=names[i] in plan.named)
    if not columns:
        told = "; ".join(f"{gone.name!r}: {gone.why}" for gone in left_out[:8])
        raise UserError(f"no column is left to learn from ({told})")
    return Recipe(tuple(columns[i] for i in sorted(columns)), tuple(left_out), plan.bits)


def split_values(cells: Array, names: Sequence[str], recipe: Recipe) -> Array:
    """Counts one client's rows by parts of buckets, [categories, MOST, parts], by a recipe of the
    second turn."""
    place = {name: i for i, name in enumerate(names)}
    columns = [column for column in recipe.columns if column.is_category]
    more = _more_bits(recipe)
    found = np.zeros((len(columns), MOST, 1 << more))
    for counts, column in zip(found, columns, strict=True):
        mine = cells[:, place[column.name]]
        there = mine["value"][mine["kind"] != Kind.MISSING]
        parts = buckets(there, recipe.bits + more)
        for i, value in enumerate(column.values):
            inside = parts[parts >> more == value] & ((1 << more) - 1)
            counts[i] = np.bincount(inside, minlength=1 << more)
    return found


def finish_recipe(recipe: Recipe, parts: Array, rare: int = RARE) -> Recipe:
    """The recipe of the third turn: a value is a part of a bucket."""
    more, counts = _more_bits(recipe), iter(parts)
    columns, left_out = [], list(recipe.left_out)
    for column in recipe.columns:
        if column.is_category:
            mine = next(counts)
            found, why = _category(column.name, mine.ravel(), mine.sum(), rare)
            if found is None:
                left_out.append(LeftOut(column.name, why))
                continue
            values = tuple(
                (column.values[v >> more] << more) + v % (1 << more) for v in found.values
            )
            column = replace(column, values=values, other=column.other or found.other)
        columns.append(column)
    if not columns:
        raise UserError(f"no column is left to learn from ({left_out[-1].why})")
    return Recipe(tuple(columns), tuple(left_out), recipe.bits + more)


def _more_bits(recipe: Recipe) -> int:
    """By which buckets are parted: as many as there is room for."""
    room = ROOM // (MOST * max(1, sum(column.is_category for column in recipe.columns)))
    return max(1, min(MOST_BITS - recipe.bits, room.bit_length() - 1))


def _usable(kinds: Array, kind: str) -> float:
    """Cells that are what their column is."""
    mine = [Kind.DATE] if kind == "date" else [Kind.NUMBER, Kind.YES, Kind.NO]
    return float(kinds[mine].sum())


def _medians(census: Census, plan: Plan, values: Values) -> Iterator[float]:
    """Medians, to half a bin; of yes and no the more frequent."""
    edges = _edges(plan)
    for place, i in enumerate(plan.measured):
        below = values.bins[place]
        half = _usable(census.kinds[i], plan.kinds[i]) / 2
        # The bin in which the count passes one half; inside it numbers are taken as even.
        last = int(np.clip(np.searchsorted(below, half, side="right"), 1, BINS))
        inside = below[last] - below[last - 1]
        share = (half - below[last - 1]) / inside if inside else 0.5
        width = edges[place, last] - edges[place, last - 1]
        median = float(edges[place, last - 1] + np.clip(share, 0, 1) * width)
        fill = float(plan.mean[i] > 0.5) if plan.kinds[i] == "boolean" else median
        yield float(np.clip(fill, -LARGEST, LARGEST))


def _category(name: str, counts: Array, told: float, rare: int) -> tuple[Column | None, str]:
    """The values that are frequent enough, the most frequent first; or why there are none."""
    order = np.argsort(-counts, kind="stable")[:MOST]
    kept = order[counts[order] >= rare]
    covered = counts[kept].sum()
    if covered < HALF * told:
        return None, "its texts are nearly all different"
    other = bool(covered < told)
    if len(kept) == 1 and not other:
        return None, "it has one value only"
    return Column(name, "category", 0.0, False, tuple(kept.tolist()), other), ""
