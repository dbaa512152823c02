"""What all commands share."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any


def command(
    commands: Any, name: str, do: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """Adds a command; its help is its text."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(do=do)
    return parser


def complete_by(action: argparse.Action, names: Iterable[str]) -> None:
    """Tells shells what an argument may be, where it may be more than that too."""
    action.names = tuple(names)  # type: ignore[attr-defined]
