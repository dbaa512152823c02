"""Pages that are made of the code say what the code says."""

import argparse
import re
import tomllib
from dataclasses import fields

import pytest

import fedpn
from blocks import ROOT
from fedpn.cli.main import _parser
from fedpn.core.settings import leaves, words
from fedpn.runs.config import resolve
from fedpn.runs.glossary import glossary
from making import PAGES, api, commands, measured, methods, settings, tables

MODULES = (api, commands, measured, methods, settings, tables)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_the_examples_of_the_makers(module):
    import doctest

    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("algorithm", ["fedpn", "ditto", "perfedavg"])
def test_settings_are_those_that_the_command_prints(algorithm):
    page = settings.page()
    for key, _ in leaves(tomllib.loads(glossary(algorithm, "digits"))):
        section, _, name = key.rpartition(".")
        title = f"## `[{section}]`" if section else "## Of the run"
        part = page[page.index(title if section != algorithm else "## `[method]`") :]
        own = page[page.index(title) :] if title in page else ""
        line = f"| `{name}` |"
        assert line in part.split("\n## ")[0] or line in own.split("\n## ")[0], key


def test_every_setting_says_what_it_is_for():
    for line in settings.page().splitlines():
        if line.startswith("| "):
            assert all(cell.strip() for cell in line.strip("|").split("|")), line


@pytest.mark.parametrize("algorithm", fedpn.ALGORITHMS.values(), ids=fedpn.ALGORITHMS)
def test_every_setting_of_an_algorithm_says_what_it_is_for(algorithm):
    """Also where an algorithm has another default than FedAvg, and so an annotation of its own."""
    said = words(algorithm)
    assert [f.name for f in fields(algorithm) if not said.get(f.name)] == []


@pytest.mark.parametrize("path", PAGES)
def test_pages_of_a_clone_are_those_that_are_made_now(path):
    assert (ROOT / path).read_text("utf-8") == PAGES[path](), "run: make reference"


def test_presets_are_those_that_runs_have():
    part = settings.page().partition("## Presets by dataset")[2].split("\n## ")[0]
    config = resolve([{"dataset": "digits"}])
    assert f"on digits, has {config.clients} clients and {config.rounds} rounds" in part
    assert f"`clients = {config.clients}`<br>`rounds = {config.rounds}`" in part
    router = resolve([{"dataset": "mnist"}]).routing.router
    (mnist,) = re.findall("^.*`mnist`.*$", part, re.MULTILINE)
    assert f'`routing.router = "{router}"` (posterior networks)' in mnist


def test_commands_are_all_that_can_be_typed():
    page = commands.page()

    def check(parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    check(inner)
            elif parser.prog != "fedpn":
                part = page[page.index(f"## {parser.prog}\n") :] if _is_leaf(parser) else ""
                for option in action.option_strings if part else ():
                    common = option in ("-h", *commands.COMMON)
                    assert common or option in part.split("\n## ")[0], f"{parser.prog} {option}"

    check(_parser())


def _is_leaf(parser):
    return not any(isinstance(a, argparse._SubParsersAction) for a in parser._actions)


def test_methods_are_those_of_the_table():
    assert list(methods.ABOUT) == list(fedpn.ALGORITHMS)
    page = methods.page()
    for name, kind in fedpn.ALGORITHMS.items():
        part = page[page.index(f"{{ #{name} }}") :].split("\n## ")[0]
        (year,) = re.findall(r"\b20\d\d\b", kind.citation) or [""]
        assert year in part
        own = {f.name for f in fields(kind)} & set(vars(kind).get("__annotations__", ()))
        assert (f"settings.md#{name}" in part) == (bool(own) and name != "fedavg")


def test_figures_are_lines_of_the_tables(tmp_path, monkeypatch):
    """A new line of the page of figures is on the page of methods at the next build."""
    (tmp_path / "docs").mkdir()
    text = (
        "| | Mix |\n| --- | --- |\n| Ditto | **12.3** |\n| Ditto, tuned | 45.6 |\n| APFL | 1.0 |\n"
    )
    (tmp_path / "docs" / "measured.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(measured, "ROOT", tmp_path)
    found = "\n".join(methods.measured(methods.ABOUT["ditto"]))
    assert "| Ditto | 12.3 |" in found and "| Ditto, tuned | 45.6 |" in found
    assert "APFL" not in found
    assert methods.measured(methods.ABOUT["fedrod"]) == ["Not in our tables yet."]


def test_every_name_of_the_package_is_told():
    page = api.page()
    for name in fedpn.__all__:
        if name not in ("__version__", "ALGORITHMS", "FedPN"):
            assert f"### fedpn.{name}\n" in page
