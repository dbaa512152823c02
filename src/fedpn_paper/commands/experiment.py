"""fedpn experiment: a figure of the paper, or one of ours."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command, complete_by
from fedpn.core.errors import UserError
from fedpn_paper import EXPERIMENTS

if TYPE_CHECKING:
    from fedpn_paper.figure import Settings


def add(commands: Any) -> None:
    text = "play an experiment: its numbers, its figure and what one sees (no name: list them)"
    parser = command(commands, "experiment", _experiment, text)
    option = parser.add_argument
    complete_by(option("name", nargs="?", metavar="NAME", help="which"), EXPERIMENTS)
    option("--out", type=Path, help="where to (default: experiments/NAME)")
    option("--quick", action="store_true", help="small, to see that it works")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, help="of everything that is drawn (default: 0)")
    seeds.add_argument("--seeds", type=int, metavar="N", help="so many seeds, from 0")
    option("--rounds", type=int, help="of federations (default: those of the paper)")
    option("--runs", type=Path, metavar="DIR", help="whose `runs` holds federations (default: OUT)")
    option("--redraw", action="store_true", help="draw and tell anew what --out holds")
    option("--resume", action="store_true", help="go on in --out, and keep what is finished there")


def _experiment(options: argparse.Namespace) -> int:
    from fedpn_paper import find, play

    if options.name is None:
        for name, line in EXPERIMENTS.items():
            print(f"{name:<10}  {line}")
        return 0
    from fedpn.cli.console import Display, Interrupt
    from fedpn.core.allocator import keep_freed_memory
    from fedpn.federated.listener import Stopped

    find(options.name)
    settings = _settings(options)
    out = options.out or Path("experiments") / options.name
    if options.redraw:
        return _redraw(options.name, out)
    if not options.resume and out.is_dir() and any(out.iterdir()):
        raise UserError(f"--out {out} is not empty; choose another, or add --resume to go on")
    keep_freed_memory()
    with ExitStack() as stack:
        display = stack.enter_context(Display(stack.enter_context(Interrupt())))
        try:
            result = play(options.name, out, settings, display)
        except Stopped as stopped:
            stack.close()
            print(f"stopped {stopped}; go on with --resume", file=sys.stderr)
            return 130
    print(f"\n{result['title']}\n\n{result['text']}\n\nfigure: {out / 'figure.png'}")
    return 0


def _redraw(name: str, out: Path) -> int:
    from fedpn.core.store import read_json
    from fedpn_paper import present

    if not (out / "result.json").exists():
        raise UserError(f"--redraw: {out} holds no result")
    found = read_json(out / "result.json")
    if found["experiment"] != name:
        raise UserError(f"--redraw: {out} holds {found['experiment']}, not {name}")
    print(f"{present(name, out, found)['text']}\n\nfigure: {out / 'figure.png'}")
    return 0


def _settings(options: argparse.Namespace) -> "Settings":
    from fedpn_paper.figure import Settings

    for name, least in (("seed", 0), ("seeds", 1), ("rounds", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UserError(f"--{name} is {value}, but must be at least {least}")
    seeds = tuple(range(options.seeds)) if options.seeds else (options.seed or 0,)
    return Settings(seeds, options.rounds, options.quick, options.runs)
