"""Cells as people write them."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from fedpn.data.cells import Kind
from fedpn.data.recipe import Style
from fedpn.data.sources.columns import read_columns
from fedpn.data.sources.csvs import csv_parts, read_csv
from fedpn.data.sources.styles import Ways
from fedpn.data.sources.writing import read


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("12", "", 12),
        ("-0.5", "", -0.5),
        (".5", "", 0.5),
        ("5.", "", 5),
        ("1e3", "", 1000),
        ("12,5", "", 12.5),  # can be read in one way only
        ("1.234,5", "", 1234.5),
        ("1,234.5", "", 1234.5),
        ("1,234", ".", 1234),
        ("1,234", ",", 1.234),
        ("1.234", ".", 1.234),
        ("1.234", ",", 1234),
        ("1 234 567", "", 1234567),
        ("1\u202f234,5", "", 1234.5),
        ("1'234.50", "", 1234.5),
        ("  7 ", "", 7),
    ],
)
def test_numbers(text, decimal, value):
    assert read(text, Style(decimal)) == (value, Kind.NUMBER)


@pytest.mark.parametrize(
    ("text", "day_first", "day"),
    [
        ("2024-02-29", "", "2024-02-29"),
        ("2024/2/9", "", "2024-02-09"),
        ("29.02.2024", "", "2024-02-29"),
        ("03/04/2024", "yes", "2024-04-03"),
        ("03/04/2024", "no", "2024-03-04"),
        ("03/04/2024", "", "2024-04-03"),
        ("12/31/2024", "yes", "2024-12-31"),  # there is no month 31
        ("3-Jan-2024", "", "2024-01-03"),
        ("3 January 2024", "", "2024-01-03"),
        ("01.02.99", "", "1999-02-01"),
        ("01.02.24", "", "2024-02-01"),
    ],
)
def test_dates(text, day_first, day):
    expected = (datetime.date.fromisoformat(day) - datetime.date(1970, 1, 1)).days
    assert read(text, Style("", day_first)) == (expected, Kind.DATE)


def test_hours_are_parts_of_days():
    value, kind = read("1970-01-02T06:30:00Z", Style())
    moment = datetime.datetime.fromisoformat("1970-01-02T06:30:00+00:00")
    assert kind == Kind.DATE and value == pytest.approx(moment.timestamp() / 86400, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["2024-02-30", "2024-13-01", "1,23,456", "1.2.3", "12:30", "<5", "3 Foo 2024", "1e60"]
)
def test_what_is_neither_is_a_text(text):
    assert read(text, Style())[1] == Kind.TEXT


@pytest.mark.parametrize(
    ("texts", "style"),
    [
        (["1,234", "12,5"], (",", "")),
        (["1,234", "12.5"], (".", "")),
        (["1,234"], (".", "")),  # as it was read
        (["03/04/2024", "13/04/2024"], ("", "yes")),
        (["03/04/2024", "04/13/2024"], ("", "no")),
        (["03/04/2024"], ("", "yes")),
        (["03.04.2024"], ("", "")),  # points need nothing to be known
        (["03.04.2024", "04.13.2024"], ("", "no")),
    ],
)
def test_a_column_tells_how_it_is_written(texts, style):
    assert read_columns({"a": texts}, ["a"]).styles["a"] == Style(*style)


def test_columns_tell_of_each_other():
    """Where one column has decimal commas, points of another part thousands."""
    columns = {"a": ["1,5", "2,5"], "b": ["1.500", "2.250"], "c": ["3", "4"]}
    found = read_columns(columns, ["a", "b", "c"])
    assert found.x["value"].tolist() == [[1.5, 1500, 3], [2.5, 2250, 4]]
    alone = read_columns(columns, ["b", "c"])
    assert alone.x.tolist() == [[1.5, 3], [2.25, 4]]
    told = read_columns(columns, ["b", "c"], Ways(known={"b": Style(",")}))
    assert told.x["value"].tolist() == [[1500, 3], [2250, 4]], "as they were written before"


def test_what_nothing_tells_is_told():
    columns = {"when": ["03/04/2024", "05/06/2024"], "much": ["1,234", "5,678"]}
    found = read_columns(columns, ["when", "much"])
    assert ["when" in found.remarks[0], "much" in found.remarks[1]] == [True, True]
    assert "data.dates='month first'" in found.remarks[0]
    assert found.x["value"][0].tolist() == [19816.0, 1234.0]
    ways = Ways(decimal="comma", dates="month first")
    other = read_columns(columns, ["when", "much"], ways)
    assert other.x["value"][0].tolist() == [19786.0, 1.234] and not other.remarks


def test_frames_with_types_of_their_own():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "when": pandas.to_datetime(["1970-01-03", None]),
            "well": [True, False],
            "maybe": pandas.array([1, None], dtype="Int64"),
            "ward": pandas.Categorical(["a", "b"]),
        }
    )
    columns = {name: np.asarray(frame[name]) for name in frame}
    x = read_columns(columns, list(columns)).x
    assert x["kind"].tolist() == [
        [Kind.DATE, Kind.YES, Kind.NUMBER, Kind.TEXT],
        [Kind.MISSING, Kind.NO, Kind.MISSING, Kind.TEXT],
    ]
    assert x["value"][0, 0] == 2


TEXT = "größe;station\n1,5;Chirurgie\n2,5;Ärzte\n"


@pytest.mark.parametrize("letters", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_letters(tmp_path, letters):
    (tmp_path / "a.csv").write_bytes(TEXT.encode(letters))
    table = read_csv(tmp_path / "a.csv")
    assert table.columns == {"größe": ("1,5", "2,5"), "station": ("Chirurgie", "Ärzte")}
    assert bool(table.remarks) == (letters == "latin-1")


def test_signs_between_columns(tmp_path):
    for text in ("sep=;\na;b\n1,5;2\n", "a|b\n1,5|2\n", '"a"\t"b"\n1,5\t2\n'):
        (tmp_path / "a.csv").write_text(text)
        assert read_csv(tmp_path / "a.csv").columns == {"a": ("1,5",), "b": ("2",)}


def test_columns_without_a_name_are_called_by_their_place(tmp_path):
    (tmp_path / "a.csv").write_text(",a,\n0,5,\n1,6,\n")
    (table,) = csv_parts(tmp_path / "a.csv")
    assert list(table.columns) == ["unnamed 1", "a", "unnamed 3"]


def test_all_lines_that_are_not_whole_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n1\n1,2\n1,2,3\n")
    with pytest.raises(ValueError, match=r"line 3 of .* has 1 values .*\(lines 5 are not right"):
        read_csv(tmp_path / "a.csv")


WRITTEN = {
    "points beside commas": {"A": ["2,5", "3,25", "4"], "B": ["36.6", "37.125", "38.250"]},
    "thousands": {"A": ["0,25", "1.510", "2.000"], "B": ["1", "2", "3"]},
    "small shares": {"A": ["0,123", "0,512", "0,899"], "B": ["1", "2", "3"]},
    "American dates": {"A": ["02/08/2024", "04/13/2024", "1/2/2024"], "B": ["1", "2", ""]},
    "codes": {"A": ["250.1", "V10", "250.10"], "B": ["1.5", "2.5", "3.5"]},
    "truth": {"A": ["True", "False", "unknown"], "B": ["yes", "no", "no"]},
}


@pytest.mark.parametrize("columns", WRITTEN.values(), ids=WRITTEN)
def test_a_row_alone_is_read_as_it_was_among_others(columns):
    """What a column shows is known from then on, however little a new row shows."""
    names = ["A", "B"]
    whole = read_columns(columns, names, Ways(keep=True))
    ways = Ways(known=whole.styles, keep=True)
    for place in range(3):
        row = {name: [values[place]] for name, values in columns.items()}
        alone = read_columns(row, names, ways).x[0]
        for part in ("value", "kind"):
            np.testing.assert_array_equal(alone[part], whole.x[place][part])


def test_signs_are_values_beside_each_other():
    x = read_columns({"a": ["+", "-", "+"], "b": ["1", "-", "2"]}, ["a", "b"]).x
    assert x["kind"].tolist() == [
        [Kind.TEXT, Kind.NUMBER],
        [Kind.TEXT, Kind.MISSING],
        [Kind.TEXT, Kind.NUMBER],
    ]


def test_values_of_any_type():
    """Numbers are no texts: no way of writing applies to them."""
    day = datetime.datetime(2024, 3, 4, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    values = [1.234, None, True, np.datetime64("1970-01-03"), day, datetime.timedelta(hours=36)]
    x = read_columns({"a": values}, ["a"], Ways(known={"a": Style(",")})).x[:, 0]
    assert x["kind"].tolist() == [
        *(Kind.NUMBER, Kind.MISSING, Kind.YES),
        *(Kind.DATE, Kind.DATE, Kind.NUMBER),
    ]
    assert x["value"][[0, 3, 5]].tolist() == [1.234, 2.0, 1.5]
    assert x["value"][4] == pytest.approx(day.timestamp() / 86400)
    texts = read_columns({"a": ["2024-03-04T12:00:00+02:00", "4.3.2024 1:30 PM"]}, ["a"]).x[:, 0]
    assert texts["value"][0] == pytest.approx(day.timestamp() / 86400)
    assert texts["value"][1] % 1 == pytest.approx(13.5 / 24)
    typed, text = (
        read_columns({"a": v}, ["a"], Ways(keep=True)).x for v in (np.array([True]), ["true"])
    )
    assert typed.tolist() == text.tolist()
    exact = read_columns({"a": [Decimal("1.234"), None]}, ["a"], Ways(known={"a": Style(",")}))
    assert exact.x["value"][0, 0] == 1.234
    huge = read_columns({"a": [10**400, 1.0]}, ["a"]).x[:, 0]
    assert huge["kind"].tolist() == [Kind.TEXT, Kind.NUMBER]


def test_names_that_look_like_numbers():
    texts = ["250.1", "250.10", "007", "7", "1e2", "100"]
    x = read_columns({"a": texts}, ["a"], Ways(categories=("a",))).x[:, 0]
    assert len(np.unique(x["value"])) == 6 and set(x["kind"]) == {Kind.TEXT}
    numbers = np.array([7.0, 73211009.0])
    found = read_columns({"a": numbers}, ["a"], Ways(categories=("a",)))
    assert sorted(found.words.values()) == ["7", "73211009"]


def test_another_way_of_writing_is_told():
    ways = Ways(known={"a": Style(",")}, keep=True)
    found = read_columns({"a": ["36.6", "37.125"]}, ["a"], ways)
    assert found.x["value"][:, 0].tolist() == [36.6, 37.125]
    assert found.remarks == ("'a': decimal points, which is not as before",)


def test_quoted_names_part_nothing(tmp_path):
    (tmp_path / "a.csv").write_text('"Pain (0,1,2,3)";b\n1;2\n')
    assert list(read_csv(tmp_path / "a.csv").columns) == ["Pain (0,1,2,3)", "b"]
    (tmp_path / "a.csv").write_text("sep=;\na;b\n1;2\n1\n")
    with pytest.raises(ValueError, match=r"line 4 of .* has 1 values"):
        read_csv(tmp_path / "a.csv")
