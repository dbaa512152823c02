"""Tables: what is read, and what is refused by line and column."""

import sys

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.cells import Kind
from fedpn.data.sources.table import Wanted, load_table

GOOD = "height,width,label,client\n1,2.5,yes,north\n3,4,no,south\n5,6e1,yes,north\n"


@pytest.fixture
def csv(tmp_path):
    def write(text, name="mine.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_features_labels_and_clients(csv):
    dataset = load_table(csv(GOOD))
    np.testing.assert_array_equal(dataset.x, np.float32([[1, 2.5], [3, 4], [5, 60]]))
    assert dataset.x.dtype == np.float32
    assert (dataset.classes, dataset.y.tolist()) == (("no", "yes"), [1, 0, 1])
    assert (dataset.clients, dataset.client.tolist()) == (("north", "south"), [0, 1, 0])


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_and_a_byte_order_mark(csv, separator):
    dataset = load_table(csv("\ufeff" + GOOD.replace(",", separator)))
    assert dataset.x.tolist() == [[1, 2.5], [3, 4], [5, 60]]


def test_quoted_values_and_blank_lines(csv):
    dataset = load_table(csv('a,label\n1,"yes, it is"\n\n2,no\n'))
    assert dataset.classes == ("no", "yes, it is")


def test_columns_may_have_other_names(csv):
    dataset = load_table(csv(GOOD), Wanted("client", "label"))
    assert (dataset.classes, dataset.clients) == (("north", "south"), ("no", "yes"))


def test_features_may_be_chosen_and_ordered(csv):
    wanted = Wanted(features=("width", "height"))
    dataset = load_table(csv("id," + GOOD.replace("\n", "\n7,", 3)), wanted)
    assert dataset.features == ("width", "height")
    assert dataset.x.tolist() == [[2.5, 1], [4, 3], [60, 5]]
    for chosen, message in (
        (("width", "weight"), "lacks the features weight; its columns are height"),
        (("width", "label"), "data.features names 'label'"),
    ):
        with pytest.raises(UserError, match=message):
            load_table(csv(GOOD), Wanted(features=chosen))


def test_class_numbers_sort_as_numbers_and_may_have_gaps(csv):
    dataset = load_table(csv("a,label\n1,10\n2,9\n3,10.0\n"))
    assert (dataset.classes, dataset.y.tolist()) == (("9", "10"), [1, 0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("label", "target"), r"no column 'label'; its columns are height, width, ta"),
        (GOOD.replace(",no,", ",0.5,"), r"line 3 of .* holds '0\.5' in the column 'label'"),
        (GOOD.replace(",yes,", ",,").replace(",no,", ",,"), "'label' of .* is empty in every row"),
        (GOOD.replace("3,4,no", "3,no"), r"line 3 of .* has 3 values and the first .* 4 columns"),
        (GOOD.replace("no", "yes"), "names one class only, 'yes'"),
        (GOOD.replace("width", "height"), "two columns named 'height'"),
        (GOOD.replace("height,width,label,client", ",,,"), "does not name every column"),
        ("label\nyes\nno\n", "no column beside 'label'"),
        ("a,label\n", "no rows below its first line"),
    ],
)
def test_a_bad_table_is_refused_in_words(csv, text, message):
    with pytest.raises(UserError, match=message) as caught:
        load_table(csv(text))
    assert "mine.csv" in str(caught.value)


def test_a_client_column_that_was_named_must_exist(csv):
    with pytest.raises(UserError, match=r"no column 'hospital'.*data\.client="):
        load_table(csv(GOOD), Wanted(client="hospital"))


def test_bytes_are_not_a_table(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"a,label\n\0\x01,1\n")
    with pytest.raises(UserError, match="not a table as text"):
        load_table(path)


def test_rows_that_do_not_tell_what_they_are_are_left_out_and_counted(csv):
    text = GOOD + "7,8,,north\n9,1,no,n/a\n"
    dataset = load_table(csv(text))
    assert dataset.x.tolist() == [[1, 2.5], [3, 4], [5, 60]]
    assert dataset.remarks == (
        "1 rows that have nothing in 'label' are left out",
        "1 rows that have nothing in 'client' are left out",
    )


@pytest.mark.parametrize("cell", ["", "tall", "inf", "1e60", "nan"])
def test_cells_that_are_no_numbers_wait_for_a_recipe(csv, cell):
    dataset = load_table(csv(GOOD.replace("6e1", cell)))
    assert dataset.is_raw and dataset.shape == (2,)
    assert dataset.x["value"][:, 0].tolist() == [1, 3, 5]
    expected = Kind.MISSING if cell in ("", "nan") else Kind.TEXT
    assert dataset.x["kind"][:, 1].tolist() == [Kind.NUMBER, Kind.NUMBER, expected]


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "mine.parquet"
    columns = {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "label": ["x", "y", "x"], "client": [7, 8, 7]}
    parquet.write_table(pa.table(columns), path)
    dataset = load_table(path)
    assert dataset.x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert (dataset.classes, dataset.clients) == (("x", "y"), ("7", "8"))
    for values in ([1, None, 3], ["1", "q", "2"]):
        parquet.write_table(pa.table(columns | {"a": values}), path)
        assert load_table(path).is_raw
    parquet.write_table(pa.table(columns | {"label": ["x", None, "y"]}), path)
    assert load_table(path).y.tolist() == [0, 1]
    parquet.write_table(pa.table(columns | {"label": [0.5, 1, 2]}), path)
    with pytest.raises(UserError, match=r"row 0 of .* in the column 'label'"):
        load_table(path)
    path.write_bytes(b"not parquet")
    with pytest.raises(UserError, match="not a Parquet table"):
        load_table(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "mine.parquet"
    path.write_bytes(b"anything")
    with pytest.raises(UserError, match=r"pip install 'fedpn\[parquet\]'"):
        load_table(path)
