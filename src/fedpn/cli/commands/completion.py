"""fedpn completion: a script by which a shell completes commands, options and names."""

import argparse
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.shells import SHELLS

DEVICES = ["auto", "cpu", "cuda", "mps"]


def add(commands: Any) -> None:
    text = "print a script that completes fedpn in bash, zsh or fish"
    parser = command(commands, "completion", _completion, text)
    parser.add_argument("shell", choices=list(SHELLS), help="for which shell")


def _completion(options: argparse.Namespace) -> None:
    from fedpn.algorithms import ALGORITHMS
    from fedpn.cli.grammar import read
    from fedpn.data.sources.datasets import names
    from fedpn.routing.routers import ROUTERS

    known = {
        "--algorithm": lambda: list(ALGORITHMS),
        "--dataset": names,
        "--router": lambda: list(ROUTERS),
        "--device": lambda: DEVICES,
        "fedpn data get names": names,
        "fedpn data show spec": names,
    }
    print(SHELLS[options.shell](read(options.parser, known)), end="")
