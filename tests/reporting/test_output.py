"""What is printed or written for other programs holds no surprises for them."""

import csv
import json

import pytest

from fedpn.cli.console import Display
from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.core.rows import write_rows

FORMULAS = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-inf", "-0.5 ± 0.1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_spreadsheet_takes_texts_as_texts(tmp_path, text):
    write_rows(tmp_path / "a.csv", [{"name": text, text: 1}])
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["name", f"'{text}"], [f"'{text}", "1"]]


def test_numbers_and_other_texts_stay(tmp_path):
    row = {"a": -0.5, "b": "-0.5", "c": "+1e-5", "d": "x=1", "e": None, "f": 3, "g": "–", "h": ""}
    write_rows(tmp_path / "a.csv", [row])
    with (tmp_path / "a.csv").open(newline="") as file:
        _, cells = csv.reader(file)
    assert cells == ["-0.5", "-0.5", "+1e-5", "x=1", "", "3", "–", ""]


def test_no_rows_and_names_that_are_no_text(tmp_path):
    for ending in ("csv", "jsonl", "md"):
        write_rows(tmp_path / f"none.{ending}", [])
        assert (tmp_path / f"none.{ending}").read_text() == ""
        write_rows(tmp_path / f"odd.{ending}", [{"input": "\udcff.png", "label": None}])
        assert "\\udcff.png" in (tmp_path / f"odd.{ending}").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="must end in"):
        write_rows(tmp_path / "a.xls", [])


def test_markdown_keeps_its_columns(tmp_path):
    write_rows(tmp_path / "a.md", [{"name": "a|b\nc", "rows": 1}])
    assert (tmp_path / "a.md").read_text().splitlines() == [
        "| name | rows |",
        "| --- | --- |",
        r"| a\|b\nc | 1 |",
    ]
    write_rows(tmp_path / "a.jsonl", [{"name": "=1\x1b"}])
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"name": "=1\x1b"}


def test_control_characters_are_shown():
    assert plain("\x1b[31m\a\r\n\t\x7f\x9b") == r"\x1b[31m\x07\r\n\t\x7f\x9b"
    assert plain("\u202eabc\u2028\ud800") == r"\u202eabc\u2028\ud800"
    assert plain("Größe 名前 ± → 👩‍⚕️") == "Größe 名前 ± → 👩‍⚕️"


def test_the_display_obeys_no_name(capsys):
    with Display() as display:
        display.say("client \x1b[2J [red]north[/red] has no rows")
        display.progress("\x1b[2J", 1, 1, **{"\x1b]0;": 1.0})
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert r"\x1b[2J [red]north[/red]" in error
