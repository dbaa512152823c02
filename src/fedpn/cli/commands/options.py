"""The options by which people type settings, and the settings that they typed."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError

FLAGS = ("dataset", "algorithm", "clients", "rounds", "seed")
TRUST = "run code that a file or a folder names (`file.py:Class`); what you type needs no trust"
TEXTS = ("dataset", "algorithm")  # names, as they stand; numbers are read as in --set


def add_settings(option: Callable[..., Any]) -> None:
    """Adds the options of settings."""
    option(
        "config", nargs="?", metavar="CONFIG.toml | DATA", help="settings; or data, as --dataset"
    )
    option("--dataset", help="a named set, or a path to your own (default: digits)")
    option(
        "--algorithm", help="see `fedpn algorithms`, or file.py:Class of your own (default: fedpn)"
    )
    option("--label", metavar="COLUMN", help="of a table, what is to be learned (data.label)")
    option("--client", metavar="COLUMN", help="of a table, whose each row is (data.client)")
    option("--clients", help="how many clients the rows are dealt to")
    option("--rounds", help="federated rounds")
    option("--seed", help="of everything that is drawn (default: 0)")
    option(
        "--router",
        help="switch as the paper does, by this score: log_density, dirichlet_entropy, msp, "
        "energy, softmax_entropy, gaussian, foreign, …",
    )
    option("--risk", help="promise that at most this share of answers is wrong, such as 0.05")
    option("--sets", help="give sets of classes that miss the true one at most this often")
    option("--unseen", help="the share of clients that never train and are judged all the same")
    option("--device", help="auto, cpu, cuda or mps (default: auto)")
    option(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="such as fedpn.gamma=0.02"
    )
    option("--trust", action="store_true", help=TRUST)


def config_file(options: argparse.Namespace) -> str:
    """The config file that was named; "" where none was."""
    named = options.config or ""
    return named if named.endswith(".toml") else ""


def typed_layers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The config file, where one is named, then each setting that was typed."""
    from fedpn.core.settings import need_trust, parse_setting, read_toml

    layers: list[dict[str, Any]] = []
    if config_file(options):
        file = read_toml(Path(options.config))
    elif options.config and options.dataset is not None:
        raise UserError(f"data are named twice: {options.config} and --dataset {options.dataset}")
    elif options.config:
        options.dataset = options.config
    for name in FLAGS:
        value = getattr(options, name)
        if value is not None:
            plain = name in TEXTS
            layers.append({name: value} if plain else parse_setting(f"{name}={value}"))
    named = {name: getattr(options, name) for name in ("label", "client")}
    layers += [{"data": {name: value}} for name, value in named.items() if value is not None]
    if options.device is not None:
        layers.append({"engine": {"device": options.device}})
    if options.router is not None:
        switched = {} if options.router in ("auto", "none") else {"rule": "quantiles"}
        layers.append({"routing": {"router": options.router, **switched}})
    promised = {name: getattr(options, name) for name in ("risk", "sets")}
    typed = [f"routing.{name}={value}" for name, value in promised.items() if value is not None]
    typed += [] if options.unseen is None else [f"data.unseen={options.unseen}"]
    layers += [parse_setting(text) for text in (*typed, *options.set)]
    if not config_file(options):
        return layers
    need_trust(file, options.config, options.trust, named_values(layers))
    return [file, *layers]


def named_values(layers: Sequence[dict[str, Any]]) -> list[Any]:
    """All values in layers of settings."""
    from fedpn.core.settings import leaves

    return [value for layer in layers for _, value in leaves(layer)]


def refuse_idle(settings: list[str], algorithms: list[str]) -> None:
    """A setting of another algorithm would change nothing, and nobody would notice."""
    from fedpn.algorithms import ALGORITHMS

    for text in settings:
        section, dot, rest = text.partition(".")
        if dot and section in ALGORITHMS and section not in algorithms:
            raise UserError(
                f"--set {text} changes nothing, for the algorithm is {' or '.join(algorithms)}; "
                f"say --set method.{rest}"
            )
