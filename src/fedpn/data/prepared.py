"""A raw table, prepared by a recipe: every row a list of numbers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedpn.data.cells import Kind, of_numbers
from fedpn.data.dataset import Array, Dataset
from fedpn.data.recipe import Recipe, know


def cells_of(dataset: Dataset) -> Array:
    """A table's cells, though they may all be numbers."""
    return dataset.x if dataset.is_raw else of_numbers(dataset.x)


def prepared(dataset: Dataset, recipe: Recipe) -> Dataset:
    """The same rows as numbers; its remarks tell what was done to which columns."""
    recipe = know(recipe, dataset.words, dataset.styles)
    places = [dataset.features.index(name) for name in recipe.names]
    cells = cells_of(dataset)[:, places]
    gone = (f"{column.name!r} is left out: {column.why}" for column in recipe.left_out)
    remarks = (*dataset.remarks, *gone, *odd_cells(dataset, recipe))
    return replace(
        dataset, x=recipe(cells), features=recipe.names, recipe=recipe, remarks=remarks, words={}
    )


def odd_cells(dataset: Dataset, recipe: Recipe) -> Iterator[str]:
    """Tells of cells that are not what their column is."""
    cells = cells_of(dataset)
    for column in recipe.columns:
        if column.is_category:
            continue
        place = dataset.features.index(column.name)
        own = [Kind.DATE] if column.kind == "date" else [Kind.NUMBER, Kind.YES, Kind.NO]
        kinds = cells["kind"][:, place]
        odd = np.flatnonzero((kinds != Kind.MISSING) & ~np.isin(kinds, own))
        if len(odd):
            text = dataset.words.get(float(cells["value"][odd[0], place]), "")
            such = f", such as {text!r}," if text else ""
            none = f"{len(odd)} cells that are no {column.kind}{such}"
            yield f"{column.name!r}: {none} count as missing"
