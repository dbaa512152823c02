"""fedpn flower init: a config to edit, and the app that Flower distributes."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.flower_run import told

HEAD = """\
# A run on Flower: every setting that counts there, and what it is for (`fedpn settings` tells all).
# What is deleted is as by default. A line that begins with # and holds a setting is another choice:
# take its # away, and put one before the setting above it. `clients` is how many nodes take part;
# where they have data of their own, `dataset` is only a name.

"""
# Only a simulation has them; where they are as usual, nobody needs to read them.
SIMULATED = (
    *(f"faults.{key}" for key in ("dropout", "stragglers", "attack", "attackers", "strength")),
    *("engine.cohort", "data.unseen", "data.without", "data.shift"),
)
OTHERS = {
    "algorithm": (
        '"fedavg"  # one model for all',
        '"analytic"  # no rounds: a head in closed form',
    ),
    "data.label": ('"diagnosis"  # nodes with tables: the column of labels',),
    "data.features": ('["age", "pressure"]  # where nodes have other columns, or another order',),
    "data.classes": ('["benign", "malignant"]  # all of the federation; nodes label rows by them',),
    "data.image_size": ("28  # nodes with images of several sizes",),
    "model.encoder": ('"resnet18"  # larger images',),
    "head.kind": ('"ridge"  # after the rounds, in closed form; tells the server more',),
    "routing.risk": (
        "0.05  # of what is answered, at most 5 % is wrong, with the chance of `sure`",
    ),
    "routing.strangers": ("0.0  # no gate, which tells the server more of a node's classes",),
    "aggregation.rule": (
        '"median"  # where some nodes may mean harm',
        '"private"  # noise on what is averaged; goes with optimizer_state = "reset"',
    ),
    "engine.device": ('"cpu"  # though there be a GPU',),
}


def add(family: Any) -> None:
    text = "make a directory with a config to edit and the app that Flower distributes"
    option = command(family, "init", told(_init), text).add_argument
    option("place", type=Path, metavar="DIR")
    option("--dataset", default="digits", help="a named set, or what nodes call their own data")
    option("--algorithm", default="fedpn", help="see `fedpn algorithms` (default: fedpn)")
    option("--clients", type=int, default=3, metavar="N", help="how many nodes (default: 3)")
    option("--rounds", type=int, default=20, help="federated rounds (default: 20)")
    option("--set", action="append", default=[], metavar="KEY=VALUE")


def _init(options: argparse.Namespace) -> None:
    from fedpn.core.settings import parse_setting
    from fedpn.core.store import write_text
    from fedpn.flower.deploy.launch import write_app
    from fedpn.flower.place import fresh
    from fedpn.runs.config import resolve
    from fedpn.runs.glossary import commented

    chosen = {
        name: getattr(options, name) for name in ("dataset", "algorithm", "clients", "rounds")
    }
    config = resolve([chosen, *(parse_setting(text) for text in options.set)])
    place = fresh(options.place)
    write_app(place)
    write_text(place / "fedpn.toml", HEAD + commented(config, OTHERS, SIMULATED))
    print(
        f"edit {place}/fedpn.toml, then:\n"
        f"    fedpn flower run {place}/fedpn.toml --superlink HOST:PORT --out DIR\n"
        "a module of your own beside it, such as an algorithm's, travels with the run to all nodes"
    )
