"""What can be typed, read from argparse: commands, their options, and what may follow each."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Slot:
    """What may follow: names that are known, or files; neither where it is anything else."""

    names: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True)
class Option:
    """An option; its slot is None where nothing follows it."""

    flags: tuple[str, ...]
    text: str
    slot: Slot | None


@dataclass(frozen=True)
class Command:
    """A command by its place, such as "fedpn data get"."""

    place: str
    text: str
    options: tuple[Option, ...]
    slot: Slot  # what its arguments may be
    children: tuple["Command", ...] = ()

    def all(self) -> Iterator["Command"]:
        """This command and all below it."""
        yield self
        for child in self.children:
            yield from child.all()


Known = dict[str, Callable[[], list[str]]]


def read(parser: argparse.ArgumentParser, known: Known, text: str = "") -> Command:
    """A parser as a command; `known` has names that may follow, by option or "place argument"."""
    options, slots, children = [], [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {pseudo.dest: pseudo.help or "" for pseudo in action._choices_actions}
            children = [
                read(child, known, texts.get(name, "")) for name, child in action.choices.items()
            ]
        elif action.option_strings:
            slot = None if action.nargs == 0 else _slot(action, known, action.option_strings[-1])
            flags = tuple(action.option_strings)
            options.append(Option(flags, _help(parser, action), slot))
        else:
            slots.append(_slot(action, known, f"{parser.prog} {action.dest}"))
    arguments = Slot(
        tuple(name for slot in slots for name in slot.names), any(slot.files for slot in slots)
    )
    return Command(parser.prog, text, tuple(options), arguments, tuple(children))


def _slot(action: argparse.Action, known: Known, key: str) -> Slot:
    listed = getattr(action, "names", ())  # of a command of another package
    names: list[Any] = list(action.choices or (known[key]() if key in known else listed))
    return Slot(tuple(map(str, names)), files=action.type is Path or key in FILES)


# Arguments that are names or paths, and so no Path yet.
FILES = {
    "--dataset",
    "fedpn run config",
    "fedpn sweep config",
    "fedpn data show spec",
    "fedpn join data",
    "fedpn update data",
    "fedpn calibrate rows",
    "fedpn score rows",
}


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """An option's help as it would be printed."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return parser._get_formatter()._expand_help(action)
