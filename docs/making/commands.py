"""Every command with its options, from the parser that reads them."""

import argparse
from collections.abc import Iterator

from fedpn.cli.main import _parser
from making.tables import cell, code, table

INTRO = """# Commands and options

All that `fedpn COMMAND --help` tells. [Commands](../commands.md) shows them at work. Exit status:
0 where all went well, 2 for a mistake of the user's, 1 for a failure, 130 after Ctrl-C. Options
that nearly all commands have: `--help`, and `--debug`, which shows the traceback of an error.
"""
COMMON = ("--help", "--debug")


def page() -> str:
    """The page of commands."""
    parts = [INTRO.strip()]
    parts += [_section(parser, about) for parser, about in walk(_parser())]
    return "\n\n".join(parts) + "\n"


def walk(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """The commands below a parser, in the order in which they were added, with their words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                if any(isinstance(a, argparse._SubParsersAction) for a in inner._actions):
                    yield from walk(inner)
                else:
                    yield inner, said.get(name, "")


def _section(parser: argparse.ArgumentParser, about: str) -> str:
    about = about[:1].upper() + about[1:] + "." if about else ""
    lines = [_line(a) for a in parser._actions if not set(a.option_strings) & set(COMMON)]
    usage = f"```text\n{_usage(parser)}\n```"
    options = table(["argument", "what it is"], lines) if lines else ""
    return "\n\n".join(filter(None, [f"## {parser.prog}", about, usage, options]))


def _line(action: argparse.Action) -> list[str]:
    said = (action.help or "") % {"default": action.default} if action.help else ""
    if action.choices:
        said = "; ".join(filter(None, [said, "one of " + ", ".join(map(str, action.choices))]))
    if action.required and action.option_strings:
        said = "; ".join(filter(None, [said, "required"]))
    return [code(_name(action)), cell(said)]


def _name(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest.upper()
    named = metavar if isinstance(metavar, str) else " ".join(metavar)
    if not action.option_strings:
        return named if isinstance(action.metavar, str) else action.dest
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {named}"


def _usage(parser: argparse.ArgumentParser) -> str:
    """The line of a command: what must be there, and that there is more."""
    needed = [a for a in parser._actions if not a.option_strings or a.required]
    words = [_needed(action) for action in needed]
    more = any(a.option_strings and not a.required for a in parser._actions)
    return " ".join([parser.prog, *words, *(["[options]"] if more else [])])


def _needed(action: argparse.Action) -> str:
    several = {"+": f"{_name(action)} …", "*": f"[{_name(action)} …]", "?": f"[{_name(action)}]"}
    return several.get(str(action.nargs), _name(action))
