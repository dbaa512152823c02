"""How columns are written is settled by file and client before the first cell is read."""

import datetime
import unicodedata

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.cells import Kind, fingerprint
from fedpn.data.recipe import Column, Recipe, Style, Written, of_client, read_recipe
from fedpn.data.sources.check import check
from fedpn.data.sources.columns import read_columns
from fedpn.data.sources.own import load_own
from fedpn.data.sources.shown import Owners
from fedpn.data.sources.styles import Ways
from fedpn.data.sources.table import read_parts
from fedpn.data.sources.writing import read
from fedpn.service.decode import _values

EPOCH = datetime.date(1970, 1, 1)


def days(text):
    return (datetime.date.fromisoformat(text) - EPOCH).days


def read_strictly(texts, known):
    ways = Ways(known={"a": known}, keep=True, strict=True)
    return read_columns({"a": texts}, ["a"], ways)


def test_clients_write_in_their_own_ways():
    """One hospital has the month first, others the day."""
    texts = ["03/04/2024", "13/06/2024", "03/04/2024", "04/13/2024", "03/04/2024"]
    owners = Owners(("A", "B", "C"), np.array([0, 0, 1, 1, 2]))
    found = read_columns({"a": texts}, ["a"], Ways(keep=True), owners)
    expected = ["2024-04-03", "2024-06-13", "2024-03-04", "2024-04-13", "2024-04-03"]
    assert found.x["value"][:, 0].tolist() == [days(text) for text in expected]
    (guess, sides) = found.remarks
    assert "'a' of C: '03/04/2024' is 2024-04-03 or 2024-03-04" in guess
    assert sides == (
        "'a': the day first of A, the month first of B; each is read as its own cells show"
    )
    assert found.styles["a"] == Style("", "yes", (Written("B", "", "no"),))
    recipe = Recipe((Column("a", "date", clients=(Written("B", "", "no"),), day_first="yes"),))
    assert of_client(recipe, "B").columns[0].day_first == "no"
    assert of_client(recipe, "A").columns[0] == Column("a", "date", day_first="yes")


def test_clients_have_their_own_decimal_signs():
    owners = Owners(("A", "B"), np.array([0, 0, 1, 1]))
    columns = {"a": ["1,5", "1,250", "1.5", "1,250"], "b": ["1.250", "2", "1.250", "2"]}
    found = read_columns(columns, ["a", "b"], Ways(keep=True), owners)
    assert found.x["value"].T.tolist() == [[1.5, 1.25, 1.5, 1250], [1250, 2, 1.25, 2]]


@pytest.mark.parametrize(
    ("texts", "known", "why"),
    [
        (["03/04/2024"], Style(), "nothing tells which"),
        (["03/04/2024", "04/13/2024"], Style("", "yes"), "have the month first, and the model"),
        (["03/04/2024", "04/13/2024", "13/04/2024"], Style("", "yes"), "show both ways"),
        (["1,234"], Style(), "nothing tells which"),
        (["1,234", "1,5"], Style("."), "have decimal commas, and the model knows decimal points"),
        (["03.04.2024", "04.13.2024"], Style("", "yes"), "have the month first"),
    ],
)
def test_what_answers_depend_on_is_refused(texts, known, why):
    with pytest.raises(UserError, match=why):
        read_strictly(texts, known)


@pytest.mark.parametrize(
    ("texts", "known", "value"),
    [
        (["03/04/2024"], Style("", "no"), days("2024-03-04")),
        (["04/13/2024"], Style("", "yes"), days("2024-04-13")),  # in one way only
        (["03.04.2024"], Style(), days("2024-04-03")),
        (["03/03/2024"], Style(), days("2024-03-03")),
        (["1,5"], Style("."), 1.5),
        (["1,234"], Style("."), 1234),
        (["1.234"], Style(), 1.234),
    ],
)
def test_what_is_known_or_can_be_read_in_one_way_is_read(texts, known, value):
    assert read_strictly(texts, known).x["value"][0, 0] == value


def test_a_newcomer_may_write_otherwise():
    ways = Ways(known={"a": Style("", "yes")}, keep=True, strict=True, newcomer=True)
    found = read_columns({"a": ["03/04/2024", "04/13/2024"]}, ["a"], ways)
    assert found.x["value"][0, 0] == days("2024-03-04")
    guess = read_columns({"a": ["03/04/2024"]}, ["a"], ways)
    assert "only other clients tell" in guess.remarks[0]


def test_parts_of_a_file_are_read_by_the_whole(tmp_path):
    """6,000 rows, whose first 4,096 can be read in both ways."""
    texts = ["03/04/2024"] * 5999 + ["04/13/2024"]
    (tmp_path / "a.csv").write_text("\n".join(["when", *texts]))
    recipe = Recipe((Column("when", "date", day_first="no"),))
    parts = list(read_parts(tmp_path / "a.csv", ("when",), (), 4096, recipe))
    assert [len(part.features) for part in parts] == [4096, 1904]
    assert {float(part.features[0, 0]) for part in parts} == {days("2024-03-04")}
    other = Recipe((Column("when", "date", day_first="yes"),))
    with pytest.raises(UserError, match="have the month first, and the model knows the day first"):
        list(read_parts(tmp_path / "a.csv", ("when",), (), 4096, other))


def test_commas_at_the_end_of_a_file_tell_of_points_at_its_beginning(tmp_path):
    lines = ["1.250;1"] * 20 + ["1.250;2,5"]
    (tmp_path / "a.csv").write_text("\n".join(["m;n", *lines]))
    columns = (Column("m", "number"), Column("n", "number", decimal=","))
    for rows in (5, 4096):
        parts = list(read_parts(tmp_path / "a.csv", ("m", "n"), (), rows, Recipe(columns)))
        assert {float(part.features[0, 0]) for part in parts} == {1250.0}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("24-Jun-91", "1991-06-24"),
        ("24. Juni 1991", "1991-06-24"),
        ("June 24, 1991", "1991-06-24"),
        ("Sept 4 2001 10:00", "2001-09-04"),
        ("12.03.45", "1945-03-12"),
        ("12.03.29", "2029-03-12"),
        ("12.03.30", "1930-03-12"),
    ],
)
def test_dates(text, day):
    value, kind = read(text, Style())
    assert kind == Kind.DATE and value // 1 == days(day)
    assert read("12 marble 2024", Style())[1] == Kind.TEXT


def test_years_of_two_digits_are_told():
    found = read_columns({"born": ["12.03.45", "1.1.1990"]}, ["born"], Ways(keep=True))
    assert "'12.03.45', are taken as 1930 to 2029" in found.remarks[0]


def test_accents_have_one_form(tmp_path):
    """A letter with its accent, or with a sign beside it: names, classes, clients and values."""
    apart = lambda text: unicodedata.normalize("NFD", text)  # noqa: E731
    name, ward = "größe", "Münster"
    assert apart(name) != name and fingerprint(apart(ward)) == fingerprint(ward)
    lines = [
        f"{i},{(ward, apart(ward))[i % 2]},{('köln', 'bonn', apart('köln'))[i % 3]}"
        for i in range(30)
    ]
    (tmp_path / "a.csv").write_text("\n".join([f"{apart(name)},client,label", *lines]))
    dataset = load_own(tmp_path / "a.csv")
    assert (dataset.features, dataset.clients, dataset.classes) == (
        (name,),
        (ward,),
        ("bonn", "köln"),
    )
    assert _values({apart(name): 3}, "input 0", [name], by_name=True) == [3]
    for kind in (ward, apart(ward)):
        (tmp_path / "b.csv").write_text(f"x,label\n1,{kind}\n2,a\n")
        assert load_own(tmp_path / "b.csv").classes == (ward, "a")


def test_numbers_as_labels_are_one_however_they_are_written(tmp_path):
    lines = [f"{i},{label}" for i, label in enumerate(["+1", "1", "1.00", "1.0", "2", "-0.0", "0"])]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    assert load_own(tmp_path / "a.csv").classes == ("0", "1", "2")
    (tmp_path / "b.csv").write_text("x,label\n1,007\n2,7\n3,Well\n4,well\n")
    assert [remark for remark in check(tmp_path / "b.csv") if remark.startswith("the classes")] == [
        "the classes '007' and '7' are one number",
        "the classes 'Well' and 'well' differ in their case alone",
    ]


@pytest.mark.parametrize("numbers", [["16777216", "16777217"], ["9007199254740993", "5"]])
def test_numbers_that_32_bits_do_not_tell_apart_are_named(numbers):
    for ways in (Ways(), Ways(keep=True)):
        assert "not told apart" in read_columns({"a": numbers}, ["a"], ways).remarks[0]
    assert not read_columns({"a": ["16777216", "16777218", "1e30"]}, ["a"]).remarks
    codes = read_columns({"a": numbers}, ["a"], Ways(categories=("a",)))
    assert len(set(codes.x["value"][:, 0])) == 2 and not codes.remarks


def test_recipes_from_anybody_are_checked():
    tree = {
        "columns": [{"name": "a", "kind": "date", "clients": [{"client": "A", "day_first": "x"}]}]
    }
    with pytest.raises(UserError, match="is written in no known way"):
        read_recipe(tree)
