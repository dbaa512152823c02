"""Tables that mean harm, or only look like it: one sentence each, at once, at every door."""

import numpy as np
import pytest
from hostile import (  # noqa: F401 (a fixture of every test)
    TABLE_DOORS,
    at_once,
    cut_and_damaged,
    refused,
    table_doors,
)

from fedpn.data.sources import csvs, guard
from fedpn.data.sources.own import load_own
from fedpn.data.sources.parquets import read_parquet

GOOD = "a,b,label\n1,2,x\n3,4,y\n5,6,x\n"
NO_NUMBERS = {
    "1e400": ("1e400", r"line 3 of .* holds '1e400' in the column 'b'"),
    "1e60": ("1e60", r"line 3 .* '1e60' .* a number that 32 bits hold"),
    "many digits": ("9" * 100_000, r"line 3 of .* holds '9{40}…' in the column 'b'"),
    "long words": ("w" * 100_000, r"line 3 of .* holds 'w{40}…' in the col"),
    "nothing": ("", "line 3 of .* holds '' in the column 'b'"),
}
TABLES = {
    "a long cell": (GOOD.replace("4", "w" * 200_000), "field larger than field limit"),
    "an open quote": (
        GOOD.replace("4", '"4') + "7,8,y\n" * 50_000,
        r"cannot be read from line \d+ on .*; is a quote not closed\?",
    ),
    "a long line": (
        "a,b,label\n" + "1," * (csvs.LINE // 2) + "1\n",
        "line 2 of .* has more than 16777216 characters",
    ),
    "a long first line": ("w" * (csvs.LINE + 9), "line 1 of .* has more than 16777216 characters"),
    "a long name": (
        "a,b" + "w" * 90_000 + "\n1,2\n",
        "no column 'label'|lacks the features b, which",
    ),
    "one name a million times": ("a," * 10**6 + "a\n", "has two columns named 'a'"),
    "nothing but a line": ("\n", "does not name every column"),
    "nul": (GOOD.replace("4", "\0"), "not a table as text .*zero bytes"),
    "an archive": (b"PK\x03\x04\xff\xfe" * 9, "has no rows"),
    "no letters": (GOOD.encode() + b"\x81,\xff,x\n", "not a table as text"),
    "half of utf-16": (GOOD.encode("utf-16")[:-1], "not a table as text"),
    "cut in a line": (GOOD[:-4], "line 4 of .* has 2 values"),
}


@table_doors
@pytest.mark.parametrize(("content", "words"), TABLES.values(), ids=TABLES)
def test_a_bad_table_is_refused_in_words(content, words, door, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(door, path, words)


@pytest.mark.parametrize(("cell", "words"), NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_cell_that_is_no_number(cell, words, tmp_path):
    """Training prepares such columns; a model that knows numbers alone refuses the row."""
    path = tmp_path / "mine.csv"
    path.write_text(GOOD.replace("4", cell))
    assert load_own(path).is_raw
    refused(TABLE_DOORS["predict"], path, words)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("1e400", r"line 3 of .* holds '1e400' in the column 'label'"),
        ("inf", r"line 3 of .* holds 'inf' in the column 'label'"),
        ("w" * 5000, r"line 3 of .* 'w{40}…' in the column 'label', which has 5000 characters"),
    ],
)
def test_an_absurd_label_in_a_table(label, words, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(GOOD.replace("y", label))
    refused(load_own, path, words)


def test_a_million_columns_are_no_matter(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(200_000)) + "\n" + "1," * 199_999 + "1\n")
    refused(load_own, path, "has no column 'label'")


@table_doors
def test_a_table_too_large_to_be_read(door, tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(csvs.LARGEST + 1)  # takes no room on the disk
    refused(door, path, r"has 1\.0 GB and at most 1\.0 GB are read; take fewer rows")


@pytest.fixture
def parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    writer = pytest.importorskip("pyarrow.parquet")

    def write(**columns):
        path = tmp_path / "mine.parquet"
        writer.write_table(pa.table(columns), path)
        return path

    return write


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([1.0, float("nan"), 2.0], "row 1 of .* holds 'nan' in the column 'b'"),
        ([1.0, float("inf"), 2.0], "row 1 of .* holds 'inf' in the column 'b'"),
        ([1.0, 1e300, 2.0], r"row 1 of .* holds '1e\+300' in the column 'b'"),
        (["1", None, "2"], "row 1 of .* holds 'None' in the column 'b'"),
    ],
)
def test_a_column_of_a_parquet_table_that_is_not_all_numbers(column, words, parquet):
    path = parquet(a=[1, 2, 3], b=column, label=["x", "y", "x"])
    assert load_own(path).is_raw
    refused(TABLE_DOORS["predict"], path, words)


@table_doors
def test_a_column_of_lists(door, parquet):
    path = parquet(a=[1, 2, 3], b=[[1.0], [2.0], [3.0]], label=["x", "y", "x"])
    refused(door, path, "the column 'b' of .* holds list<")


@table_doors
def test_a_cut_or_damaged_parquet_table_is_read_or_refused(door, parquet):
    path = parquet(a=[1, 2, 3], b=[4, 5, 6], label=["x", "y", "x"])
    cut_and_damaged(door, path, "is not a Parquet table", step=97, times=100)


@table_doors
def test_a_parquet_table_that_would_fill_the_memory(door, parquet, monkeypatch):
    path = parquet(a=np.zeros(10**6), b=np.zeros(10**6), label=np.zeros(10**6, int))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr(guard, "MOST", 10**7)
    refused(door, path, r"1000000 rows of .* would take 22\.9 MB")


def test_text_that_repeats_in_a_parquet_table_is_held_once(parquet):
    long = "w" * 10**5
    path = parquet(a=[1] * 300, b=[long] * 300, label=["x", "y", None] * 100)
    columns = read_parquet(path).columns
    assert len({id(text) for text in columns["b"]}) == 1
    assert columns["label"][:3] == ["x", "y", None]
