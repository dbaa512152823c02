"""Tables: read, or refused in a sentence, to learn from and to be answered."""

import io

import numpy as np
import pyarrow
import pytest
from absurd import NUMBERS, numbers, texts
from files import csv, parquet
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from trial import fuzz, reads

from fedpn.data.sources.own import load_own
from fedpn.data.sources.table import Wanted, read_parts
from fedpn.serving.inputs import read_inputs

COLUMNS = {"a": [1, 2, 3, 4], "b": [0.5, None, 2.5, 3.5], "label": ["x", "y", "é", "y"]}
WHOLE = {"a": [1, 2, 3, 4], "b": [0.5, 1.5, 2.5, 3.5], "label": ["x", "y", "é", "y"]}
PARQUETS = [
    parquet(WHOLE),
    parquet(COLUMNS),
    parquet(WHOLE, use_dictionary=False, compression="none"),
    parquet(WHOLE, compression="gzip", data_page_version="2.0", write_statistics=False),
    parquet(WHOLE, store_schema=False, compression="zstd"),
]


def at_every_door(path, content):
    path.write_bytes(content)
    reads(lambda: load_own(path), path.name)
    reads(lambda: load_own(path, wanted=Wanted("a", features=("b",))), path.name)
    reads(lambda: read_inputs(path, (2,), ("a", "b")), path.name)
    reads(lambda: list(read_parts(path, (), ("label",), 2)), path.name)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@fuzz(examples=120)
@given(content=st.one_of(*(mutated(csv(separator)) for separator in ",;\t")))
def test_text_with_damage(ending, content, tmp_path):
    at_every_door(tmp_path / f"mine{ending}", content)


CELLS = st.one_of(
    texts(), numbers().map(str), st.sampled_from(["1_0", "1e5", "0x1", "١٢", "½", '"'])
)


@fuzz(examples=120)
@given(
    names=st.lists(st.one_of(st.sampled_from(["a", "b", "label", "client"]), texts()), max_size=5),
    rows=st.lists(st.lists(CELLS, max_size=5), max_size=4),
)
def test_text_of_absurd_cells(names, rows, tmp_path):
    lines = [",".join(names), *(",".join(row) for row in rows)]
    at_every_door(tmp_path / "mine.csv", "\n".join(lines).encode())


@fuzz(examples=60)
@given(
    a=st.lists(CELLS, min_size=3, max_size=3),
    label=st.lists(CELLS, min_size=3, max_size=3),
)
def test_tables_of_absurd_cells(a, label, tmp_path):
    """The form is right, so that every cell is looked at."""
    quoted = ['"{}"'.format(cell.replace('"', '""')) for cell in (*a, *label)]
    lines = ["a,b,label", *(f"{quoted[i]},{i},{quoted[3 + i]}" for i in range(3))]
    at_every_door(tmp_path / "mine.csv", "\n".join(lines).encode())


@fuzz(examples=200)
@given(content=st.one_of(*map(mutated, PARQUETS)))
@example(content=PARQUETS[2].replace("é".encode(), b"\xff\xfe"))  # no text
@example(content=PARQUETS[2].replace(b"label", b"lab\xff\xfe"))
def test_parquet_with_damage(content, tmp_path):
    at_every_door(tmp_path / "mine.parquet", content)


def odd_columns():
    """Columns of four rows and of any type that Parquet has."""
    whole = [n for n in NUMBERS if -(2**63) <= n < 2**63]
    kinds = {
        pyarrow.int64(): st.sampled_from(whole),
        pyarrow.float64(): st.floats(),
        pyarrow.float16(): st.floats(width=16).map(np.float16),
        pyarrow.bool_(): st.booleans(),
        pyarrow.string(): texts(),
        pyarrow.large_string(): texts(),
        pyarrow.binary(): st.binary(max_size=4),
        pyarrow.binary(2): st.binary(min_size=2, max_size=2),
        pyarrow.date32(): st.dates(),
        pyarrow.time64("us"): st.times(),
        pyarrow.timestamp("us"): st.datetimes(),
        pyarrow.timestamp("ns", "UTC"): st.sampled_from([-(2**62), 0, 2**62]),
        pyarrow.duration("s"): st.integers(-(2**31), 2**31),
        pyarrow.decimal128(38, 2): st.decimals(-(10**9), 10**9, places=2),
        pyarrow.list_(pyarrow.int8()): st.lists(st.integers(0, 9), max_size=2),
        pyarrow.struct({"a": pyarrow.int8()}): st.just({"a": 1}),
        pyarrow.map_(pyarrow.string(), pyarrow.int8()): st.just({"a": 1}),
        pyarrow.null(): st.none(),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.string()): st.sampled_from("ab"),
    }

    def column(kind):
        cells = st.one_of(kinds[kind], kinds[kind], st.none())
        cells = st.lists(cells, min_size=4, max_size=4)
        return cells.map(lambda found: pyarrow.array(found, kind))

    return st.sampled_from(list(kinds)).flatmap(column)


NAMES = st.one_of(st.sampled_from(["a", "b", "label", "client"]), texts())


@fuzz(examples=80)
@given(columns=st.dictionaries(NAMES, odd_columns(), min_size=1, max_size=4))
def test_parquet_of_odd_types(columns, tmp_path):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    at_every_door(tmp_path / "mine.parquet", file.getvalue())


def test_whole_tables_are_read(tmp_path):
    for name, content in [("a.csv", csv()), ("a.tsv", csv("\t")), ("a.parquet", PARQUETS[3])]:
        (tmp_path / name).write_bytes(content)
        assert reads(lambda path=tmp_path / name: load_own(path))
        assert reads(lambda path=tmp_path / name: read_inputs(path, (2,), ("a", "b")))
