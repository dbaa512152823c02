"""What all commands share."""

import argparse
from collections.abc import Callable
from typing import Any


def command(
    commands: Any, name: str, do: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """Adds a command; its help is its text."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(do=do)
    return parser
