"""Recipes: what clients learn together of their columns, against pooled rows and scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from fedpn.core.errors import UserError
from fedpn.data.cells import CELL, Kind, buckets, fingerprint, of_numbers
from fedpn.data.census import (
    Census,
    Values,
    count_values,
    finish_recipe,
    is_sound,
    make_recipe,
    plan,
    split_values,
    take_census,
)
from fedpn.data.dataset import Dataset
from fedpn.data.prepared import prepared
from fedpn.data.recipe import Column, Recipe, know, read_recipe
from fedpn.data.sources.columns import read_columns
from fedpn.data.sources.table import ways_of

WARDS = ["surgery", "medicine", "icu"]


def table(rows=400, seed=0):
    """Columns of all kinds, as texts, and the same for scikit-learn."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 15, rows)
    lost = rng.random(rows) < 0.2
    ward = rng.choice(WARDS, rows, p=[0.5, 0.3, 0.2])
    rare = np.arange(rows) < 3
    return {
        "age": ["" if gone else f"{value:.3f}" for value, gone in zip(age, lost, strict=True)],
        "ward": ["dentist" if r else w for w, r in zip(ward, rare, strict=True)],
        "smokes": rng.choice(["yes", "no"], rows).tolist(),
        "came": [f"2024-{m:02d}-{d:02d}" for m, d in rng.integers(1, 28, (rows, 2)) % 12 + 1],
        "same": ["x"] * rows,
        "id": [str(1000 + i) for i in range(rows)],
        "note": [f"text {i}" for i in range(rows)],
    }


def learned(parts, names, categories=()):
    """The recipe of several clients, from the sums of their rows alone."""
    censuses = [take_census(cells) for cells in parts]
    census = Census(*(sum(sums) for sums in zip(*censuses, strict=True)))
    known = plan(census, names, categories)
    found = [count_values(cells, known) for cells in parts]
    values = Values(*(sum(sums) for sums in zip(*found, strict=True)))
    recipe = make_recipe(names, census, known, values)
    return finish_recipe(recipe, sum(split_values(cells, names, recipe) for cells in parts))


def test_however_rows_are_dealt_the_recipe_is_one():
    columns = table()
    names = list(columns)
    cells = read_columns(columns, names).x
    whole = learned([cells], names)
    parts = learned(np.array_split(cells, [7, 8, 200]), names)
    for one, other in zip(whole.columns, parts.columns, strict=True):
        assert one.fill == pytest.approx(other.fill, rel=1e-12)
        assert replace(one, fill=0) == replace(other, fill=0)
    assert whole.left_out == parts.left_out
    assert {gone.name for gone in whole.left_out} == {"same", "id", "note"}
    kinds = {column.name: column.kind for column in whole.columns}
    assert kinds == {"age": "number", "ward": "category", "smokes": "boolean", "came": "date"}


def test_against_scikit_learn():
    columns = table()
    rows = np.array([columns["age"], columns["ward"]], object).T
    rows[rows[:, 0] == "", 0] = np.nan
    rows[:, 0] = rows[:, 0].astype(float)
    theirs = ColumnTransformer(
        [
            ("age", SimpleImputer(strategy="median", add_indicator=True), [0]),
            (
                "ward",
                OneHotEncoder(min_frequency=5, handle_unknown="infrequent_if_exist"),
                [1],
            ),
        ],
        sparse_threshold=0,
    ).fit_transform(rows)
    names = ["age", "ward"]
    cells = read_columns(columns, names).x
    recipe = learned([cells], names)
    ours = recipe(cells)
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    spread = np.nanstd(rows[:, 0].astype(float))
    np.testing.assert_allclose(ours[:, 0], theirs[:, 0].astype(float), atol=spread / 128)
    np.testing.assert_array_equal(ours[:, 1], theirs[:, 1])
    # Columns of a category come in another order: by how many rows have a value.
    mine, their = ({tuple(column) for column in x[:, 2:].T} for x in (ours, theirs))
    assert mine == their


@pytest.mark.parametrize("draw", ["normal", "lognormal", "two values", "far away"])
def test_medians(draw):
    rng = np.random.default_rng(1)
    x = {
        "normal": rng.normal(5, 3, 1001),
        "lognormal": np.exp(rng.normal(0, 2, 1001)),
        "two values": rng.choice([0.0, 10.0], 1001, p=[0.3, 0.7]),
        "far away": 1e6 + rng.normal(0, 1, 1001),
    }[draw]
    recipe = learned([of_numbers(x[:, None])], ["a"])
    assert abs(recipe.columns[0].fill - np.median(x)) <= x.std() / 100


def test_what_is_new_is_another_and_what_is_missing_is_told():
    names = ["age", "ward"]
    columns = table()
    cells = read_columns(columns, names).x
    recipe = learned([cells], names)
    new = read_columns({"age": ["", "50"], "ward": ["zoo", ""]}, names).x
    row, other = recipe(new)
    told = dict(zip(recipe.features, row, strict=True))
    fill = np.float32(recipe.columns[0].fill)
    assert (told["age"], told["age is missing"], told["ward another"]) == (fill, 1, 1)
    most = recipe.columns[1].values[0]
    assert dict(zip(recipe.features, other, strict=True))[f"ward = #{most}"] == 1
    assert recipe.told(row) == [None, "another"]


def test_numbers_may_be_named_categories():
    cells = of_numbers(np.tile([1.0, 2.0, 5.0], 20)[:, None])
    assert learned([cells], ["code"]).columns[0].kind == "number"
    column = learned([cells], ["code"], ["code"]).columns[0]
    assert column.kind == "category" and len(column.values) == 3


def test_values_that_share_a_bucket_are_told_apart():
    """`I70.5` and `skin` have the same first 16 bits."""
    pair = ["I70.5", "skin"]
    prints = np.array([fingerprint(text) for text in pair])
    assert len(set(buckets(prints, 16))) == 1
    found = read_columns({"a": pair * 30 + ["heart"] * 30}, ["a"])
    parts = np.array_split(found.x, 4)
    recipe = learned(parts, ["a"])
    x = know(recipe, found.words, found.styles)(found.x)
    assert len(np.unique(x, axis=0)) == 3
    # One that was never seen is another, though it shares a bucket with one that was.
    alone = read_columns({"a": ["I70.5", "heart"] * 30}, ["a"])
    recipe = know(learned([alone.x], ["a"]), alone.words, {})
    new = read_columns({"a": pair}, ["a"]).x
    assert [recipe.told(row)[0] for row in recipe(new)] == ["I70.5", "another"]


def test_some_cells_may_be_something_else():
    texts = ["<5"] * 5 + [str(i) for i in range(95)]
    found = read_columns({"a": texts}, ["a"])
    dataset = Dataset(
        "t", found.x, np.arange(100) % 2, ("a", "b"), features=("a",), words=found.words
    )
    recipe = learned([found.x], ["a"])
    done = prepared(dataset, recipe)
    assert done.x[:5, 1].tolist() == [1.0] * 5 and done.x[5:, 1].sum() == 0
    assert done.remarks == ("'a': 5 cells that are no number, such as '<5', count as missing",)
    half = read_columns({"a": ["<5"] * 40 + texts[40:], "b": texts}, ["a", "b"])
    assert [gone.name for gone in learned([half.x], ["a", "b"]).left_out] == ["a"]


def test_wide_tables_do_not_take_all_memory():
    cells = np.zeros((20, 3000), CELL)
    cells["kind"] = Kind.TEXT
    census = take_census(cells)
    known = plan(census, [str(i) for i in range(3000)])
    assert count_values(cells, known).texts.size <= 1 << 22


GOOD = {"name": "a", "kind": "category", "values": [3, 9], "fill": 1.0, "other": True}


@pytest.mark.parametrize(
    "change",
    [
        {"values": [3, 3]},
        {"values": []},
        {"values": [3, 1 << 20]},
        {"values": [-1, 3]},
        {"fill": 2.0},
        {"fill": 0.5},
        {"fill": float("nan")},
        {"fill": "much"},
        {"kind": "number"},
        {"kind": "ordinal"},
        {"names": ["one"]},
        {"decimal": "x"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_crafted_recipe_is_refused(change):
    assert read_recipe({"columns": [GOOD], "bits": 16}).width == 3
    with pytest.raises(UserError):
        read_recipe({"columns": [GOOD | change], "bits": 16})
    for columns in ([], [GOOD, GOOD], "a", [3]):
        with pytest.raises(UserError):
            read_recipe({"columns": columns})


def test_the_width_is_that_of_rows():
    columns = (
        Column("a", "number", 1.0, True),
        Column("b", "category", 0.0, True, (1, 2), True),
        Column("c", "date"),
    )
    recipe = Recipe(columns)
    assert recipe(np.zeros((1, 3), CELL)).shape == (1, recipe.width) == (1, len(recipe.features))


def test_what_never_was_a_gap_makes_a_stranger():
    """An unreadable cell is not answered as if it were the median."""
    recipe = learned([of_numbers(np.arange(50.0)[:, None])], ["a"])
    cells = read_columns({"a": ["1.2OO", "", "7"]}, ["a"]).x
    x = recipe(cells)[:, 0]
    assert np.isnan(x[0]) and x[1] == np.float32(recipe.columns[0].fill) and x[2] == 7


def test_letters_for_sexes_are_no_yes_and_no():
    texts = ["f"] * 95 + ["m"] * 5
    column = learned([read_columns({"sex": texts}, ["sex"]).x], ["sex"]).columns[0]
    assert column.kind == "category" and len(column.values) == 2


def test_nothing_to_learn_from_is_told():
    cells = of_numbers(np.ones((50, 1)))
    with pytest.raises(UserError, match=r"no column is left to learn from \('k': it has one value"):
        learned([cells], ["k"])


def test_columns_called_like_what_is_made_of_others():
    columns = (Column("a", "number", 0.0, True), Column("a is missing", "number"))
    recipe = Recipe(columns)
    row = recipe(of_numbers(np.array([[5.0, 2.0]])))[0]
    assert recipe.told(row) == [5.0, 2.0]


@pytest.mark.parametrize(
    "change",
    [
        {"total": 1e300},
        {"kinds": 1e300},
        {"kinds": -1.0},
        {"kinds": 0.5},
        {"squares": -1.0},
        {"total": 50.0},
        {"different": 99.0},
        {"squares": float("nan")},
    ],
    ids=str,
)
def test_sums_that_no_rows_have(change):
    census = take_census(of_numbers(np.random.default_rng(0).random((20, 3))))
    assert is_sound(census)
    for name, value in change.items():
        wrong = getattr(census, name).copy()
        wrong[1] = value
        assert not is_sound(census._replace(**{name: wrong}))


def test_a_sign_alone_is_what_it_was_among_others():
    found = read_columns({"rhesus": ["+", "-"] * 20, "x": ["1", ""] * 20}, ["rhesus", "x"])
    recipe = know(learned([found.x], ["rhesus", "x"]), found.words, found.styles)
    alone = read_columns({"rhesus": ["-"], "x": ["-"]}, ["rhesus", "x"], ways_of(recipe))
    assert recipe.told(recipe(alone.x)[0])[0] == "-"
    assert alone.x["kind"][0].tolist() == [Kind.TEXT, Kind.MISSING]


@pytest.mark.parametrize("rows", [743, 1488, 6000, 20_000])
@pytest.mark.parametrize("value", [2.1, 1.3, 0.7, 36.6, 1e9 + 0.1])
def test_a_constant_column_is_one_however_many_rows_there_are(value, rows):
    """Kept, it would make a stranger of the first row that has another value."""
    x = np.full((rows, 3), value)
    x[:, 0] = np.arange(rows)
    census = take_census(of_numbers(x))
    assert plan(census, ["age", "version", "unit"]).spread[1:].tolist() == [0.0, 0.0]


def test_a_column_that_is_nearly_of_numbers_says_what_is_wrong():
    """Laboratories write <5 for what they cannot tell from nothing."""
    texts = [f"{i / 7:.2f}" if i % 8 else f"<{i}" for i in range(400)]
    names = ["age", "crp"]
    columns = {"age": [str(i % 60) for i in range(400)], "crp": texts}
    recipe = learned([read_columns(columns, names).x], names)
    (gone,) = recipe.left_out
    assert (gone.name, gone.why[:40]) == ("crp", "only 88 % of its cells are numbers: writ")
