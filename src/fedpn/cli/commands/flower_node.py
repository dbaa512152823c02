"""fedpn flower policy and rollback: what a node allows, and which of its models answers."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError


def add(family: Any) -> None:
    text = "write what a node lets a server ask of it, to be edited; or check what is there"
    option = command(family, "policy", _policy, text).add_argument
    option("state", type=Path, metavar="STATE", help="the node's --state")
    text = "let an older version of a node's own model answer again"
    option = command(family, "rollback", _rollback, text).add_argument
    option("state", type=Path, metavar="STATE", help="the node's --state")
    option("--to", default="", metavar="VERSION", help="(default: the one before)")
    option("--list", action="store_true", help="show the versions, and which one answers")


def _policy(options: argparse.Namespace) -> None:
    from fedpn.core.store import write_text
    from fedpn.flower.app.policy import FILE, Policy, read_policy, write_policy

    path = options.state / FILE
    if path.exists():
        print(write_policy(read_policy(options.state)))
        return
    options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(path, write_policy(Policy()))
    print(f"{path} says what every run may ask; edit it, the node reads it with every message")


def _rollback(options: argparse.Namespace) -> None:
    from fedpn.flower.app import models

    if not options.state.is_dir():
        raise UserError(f"{options.state} is not a node's state directory")
    if options.list:
        now = models.current(options.state)
        for name in models.versions(options.state):
            print(f"{name}{'  answers' if name == now else ''}")
        return
    print(f"version {models.rollback(options.state, options.to)} answers now")
