"""What fedpn would make of one's own data."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedpn.core.aligned import aligned
from fedpn.core.plain import plain
from fedpn.data.cells import Array, Kind
from fedpn.data.census import (
    count_values,
    finish_recipe,
    make_recipe,
    plan,
    split_values,
    take_census,
)
from fedpn.data.dataset import Dataset
from fedpn.data.partition import ENOUGH, usual
from fedpn.data.prepared import cells_of
from fedpn.data.recipe import Column, Recipe, know, odd_cells
from fedpn.data.sources.guard import short
from fedpn.data.sources.own import load_own
from fedpn.data.sources.table import ALL, Wanted
from fedpn.data.units import of_rows

SHOWN = 40  # columns
FAR = 20  # times as far from the middle as nine tenths of the values are wide
CODES = range(3, 11)  # so many different whole numbers may be codes


def check(path: Path, image_size: int | None = None, wanted: Wanted = ALL) -> list[str]:
    """Reads one's own data as a run would, and tells in lines what it found and would do."""
    return tell(path, load_own(path, image_size, wanted), wanted.ways.categories)


def tell(path: Path, dataset: Dataset, categories: Sequence[str] = ()) -> list[str]:
    """The same of data that are read already."""
    counts = np.bincount(dataset.y, minlength=len(dataset.classes))
    few, many = int(counts.argmin()), int(counts.argmax())
    lines = [
        f"{path}: {len(dataset)} rows of {_form(dataset)}",
        f"{len(counts)} classes, "
        + (
            f"{counts[few]} rows each"
            if counts[few] == counts[many]
            else f"from {counts[few]} rows ({dataset.classes[few]}) to {counts[many]} "
            f"({dataset.classes[many]})"
        ),
    ]
    if dataset.features:
        recipe = learn(dataset, categories)
        lines += ["", *_table(dataset, recipe), "", *_hints(dataset, recipe)]
        place = {name: i for i, name in enumerate(dataset.features)}
        places = [place[name] for name in recipe.names]
        lines += odd_cells(cells_of(dataset)[:, places], recipe, dataset.words)
    told = [*dataset.remarks, *_copies(dataset), *_advice(dataset)]
    return [plain(line) for line in lines + told]


def learn(dataset: Dataset, categories: Sequence[str] = ()) -> Recipe:
    """The recipe of a table by itself, from all of its rows."""
    cells, names = cells_of(dataset), dataset.features
    census = take_census(cells)
    known = plan(census, names, categories)
    recipe = make_recipe(names, census, known, count_values(cells, known))
    recipe = finish_recipe(recipe, split_values(cells, names, recipe))
    return know(recipe, dataset.words, dataset.styles)


def _form(dataset: Dataset) -> str:
    if len(dataset.shape) == 1:
        return f"{dataset.shape[0]} {'columns' if dataset.is_raw else 'features'} (encoder: mlp)"
    channels, height, width = dataset.shape
    kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{kind} images of {width}×{height}"


def _table(dataset: Dataset, recipe: Recipe) -> list[str]:
    """A line for each column: what it looks like, and what becomes of it."""
    used = {column.name: column for column in recipe.columns}
    reasons = {gone.name: gone.why for gone in recipe.left_out}
    cells = cells_of(dataset)
    rows = [("column", "kind", "missing", "such as", "what is done")]
    for place, name in enumerate(dataset.features[:SHOWN]):
        column = used.get(name)
        kind = column.kind if column else "–"
        missing = int((cells["kind"][:, place] == Kind.MISSING).sum())
        done = _done(column) if column else f"left out: {reasons[name]}"
        if not dataset.is_raw and not column:
            done = f"kept, though {reasons[name]}"
        example = _example(dataset, cells[:, place], column)
        rows.append((plain(short(name)), kind, str(missing or "–"), plain(example), done))
    more = len(dataset.features) - SHOWN
    return [*aligned(rows, texts=len(rows[0])), *([f"… and {more} more"] if more > 0 else [])]


def _done(column: Column) -> str:
    usually = column.usual
    filled = f"{usually:.4g}" if isinstance(usually, float) else repr(short(str(usually), 20))
    parts = [f"missing: {filled}, and a column that tells so"] if column.missing else []
    if column.is_category:
        other = ", and one for all others" if column.other else ""
        parts = [f"{len(column.values)} columns, one a value{other}", *parts]
    elif column.kind == "date":
        parts = ["days since 1970", *parts]
    elif column.kind == "boolean":
        parts = ["0 and 1", *parts]
    return "; ".join(parts) or "taken as it is"


def _example(dataset: Dataset, cells: Array, column: Column | None) -> str:
    there = cells[cells["kind"] != Kind.MISSING]
    if not len(there):
        return ""
    value, kind = float(there["value"][0]), int(there["kind"][0])
    if kind in (Kind.TEXT, Kind.YES, Kind.NO):
        return short(dataset.words.get(value, "true" if kind == Kind.YES else "false"), 24)
    return str(column.written(value)) if column and column.kind == "date" else f"{value:g}"


def _hints(dataset: Dataset, recipe: Recipe) -> Iterator[str]:
    """Columns that may be something else than they look like, and the option that says so."""
    cells, kinds = cells_of(dataset), {column.name: column.kind for column in recipe.columns}
    codes, all_different, far = [], [], []
    for place, name in enumerate(dataset.features):
        if kinds.get(name) != "number":
            continue
        numbers = cells["value"][:, place][cells["kind"][:, place] == Kind.NUMBER]
        different = np.unique(numbers)
        low, middle, high = np.percentile(numbers, (5, 50, 95))
        if np.abs(different - middle).max() > FAR * max(high - low, 1e-12):
            most = different[np.abs(different - middle).argmax()]
            far.append(f"{name!r} ({most:g})")
        if (different != np.round(different)).any():
            continue
        if len(different) == len(dataset):
            all_different.append(name)
        elif len(different) in CODES and len(dataset) > 10 * len(different):
            codes.append(name)
    if far:
        told = ", ".join(far[:8])
        yield f"far from all other values: {told}; if that means missing, make it empty"
    if all_different:
        yield (
            f"another whole number in every row, if that is an identifier: "
            f'--set "data.ignore={all_different[:8]}"'
        )
    if codes:
        yield f'few whole numbers, if those are codes: --set "data.categories={codes[:8]}"'


def _copies(dataset: Dataset) -> list[str]:
    """What rows belong together, and are dealt whole."""
    if dataset.group is not None:
        return [f"{len(np.unique(dataset.group))} groups by {dataset.groups!r}, dealt whole"]
    copies = len(dataset) - len(np.unique(of_rows(dataset.x)))
    if not copies:
        return []
    return [f"{copies} rows are exact copies of others, and count once; else data.copies=each"]


def _advice(dataset: Dataset) -> list[str]:
    if dataset.client is not None:
        sizes = np.bincount(dataset.client, minlength=len(dataset.clients))
        least = int(sizes.argmin())
        lines = [
            f"{len(sizes)} clients, from {sizes[least]} rows ({dataset.clients[least]}) "
            f"to {sizes.max()}: the partition 'natural' keeps them"
        ]
        small = [dataset.clients[c] for c in np.flatnonzero(sizes < ENOUGH)]
        if small:
            who = ", ".join(small[:8]) + " …" * (len(small) > 8)
            lines.append(
                f"less than {ENOUGH} rows, too few for thresholds of their own, have {who}: they "
                "borrow the federation's"
            )
        return lines
    most = len(dataset) // ENOUGH
    if most < 2:
        return [f"too few rows for a federation: 2 clients need {2 * ENOUGH}"]
    return [
        f"no client is named: the partition {usual(dataset)!r} deals them, evenly to at most {most}"
    ]
