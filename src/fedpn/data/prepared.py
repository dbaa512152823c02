"""A raw table, prepared by a recipe: every row a list of numbers."""

from dataclasses import replace

import numpy as np

from fedpn.data.cells import Kind, of_numbers
from fedpn.data.dataset import Array, Dataset
from fedpn.data.recipe import Recipe, know, odd_cells


def cells_of(dataset: Dataset) -> Array:
    """A table's cells, though they may all be numbers."""
    return dataset.x if dataset.is_raw else of_numbers(dataset.x)


def has_gaps(dataset: Dataset) -> bool:
    """Whether some cells of a table are no numbers."""
    return dataset.is_raw and bool((dataset.x["kind"] != Kind.NUMBER).any())


def numbers_if(dataset: Dataset) -> Dataset:
    """The same as plain numbers, where all cells are."""
    if not dataset.is_raw or has_gaps(dataset):
        return dataset
    return replace(dataset, x=dataset.x["value"].astype(np.float32))


def prepared(dataset: Dataset, recipe: Recipe) -> Dataset:
    """The same rows as numbers; its remarks tell what was done to which columns."""
    recipe = know(recipe, dataset.words, dataset.styles)
    cells = cells_of(dataset)[:, _places(dataset, recipe)]
    gone = (f"{column.name!r} is left out: {column.why}" for column in recipe.left_out)
    remarks = (*dataset.remarks, *gone, *odd_cells(cells, recipe, dataset.words))
    return replace(
        dataset, x=recipe(cells), features=recipe.names, recipe=recipe, remarks=remarks, words={}
    )


def _places(dataset: Dataset, recipe: Recipe) -> list[int]:
    """Where the columns of a recipe stand in a table."""
    place = {name: i for i, name in enumerate(dataset.features)}
    return [place[name] for name in recipe.names]
