"""fedpn run."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError

if TYPE_CHECKING:
    from fedpn.runs.config import Config


def add(commands: Any) -> None:
    text = "train, personalise, calibrate, evaluate and report"
    option = command(commands, "run", _run, text).add_argument
    option(
        "config", nargs="?", metavar="CONFIG.toml | DATA", help="settings; or data, as --dataset"
    )
    option("--dataset", help="a named set, or a path to your own (default: digits)")
    option(
        "--algorithm", help="see `fedpn algorithms`, or file.py:Class of your own (default: fedpn)"
    )
    option("--clients", help="how many clients the rows are dealt to")
    option("--rounds", help="federated rounds")
    option("--seed", help="of everything that is drawn (default: 0)")
    option("--out", type=Path, help="the run directory (default: runs/DATASET-ALGORITHM-SEED)")
    option(
        "--router",
        help="switch as the paper does, by this score: log_density, dirichlet_entropy, msp, "
        "energy, softmax_entropy, gaussian, foreign, …",
    )
    option("--risk", help="promise that at most this share of answers is wrong, such as 0.05")
    option("--sets", help="give sets of classes that miss the true one at most this often")
    option("--unseen", help="the share of clients that never train and are judged all the same")
    option("--checkpoint-every", type=int, metavar="N", help="rounds (default: about 30 s)")
    option("--device", help="auto, cpu, cuda or mps (default: auto)")
    option("--tensorboard", action="store_true", help="write event files into the run directory")
    option("--mlflow", action="store_true", help="log to MLflow")
    option("--resume", action="store_true", help="go on with the run in --out")
    option("--overwrite", action="store_true", help="replace the run that is in --out")
    option("--trust", action="store_true", help="with --resume: run the code that the run names")
    option(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="such as fedpn.gamma=0.02"
    )


def _run(options: argparse.Namespace) -> int:
    from fedpn.cli.console import Display, Interrupt
    from fedpn.core.allocator import keep_freed_memory
    from fedpn.federated.listener import Listeners, Stopped
    from fedpn.reporting import report
    from fedpn.runs import pipeline
    from fedpn.runs.directory import refuse_changes
    from fedpn.runs.trackers import TRACKERS, find_tracker

    if options.checkpoint_every is not None and options.checkpoint_every < 1:
        raise UserError(f"--checkpoint-every is {options.checkpoint_every}, but must be at least 1")
    trackers = [find_tracker(name) for name in TRACKERS if getattr(options, name)]
    config = _config(options)
    keep_freed_memory()
    if options.resume:
        refuse_changes(config, options.out)
    name = f"{Path(config.dataset).stem}-{config.algorithm.split(':')[-1]}-{config.seed}"
    out = options.out or Path("runs") / name
    with Interrupt() as interrupt, Display(interrupt) as display:
        listener = Listeners([display, *trackers])
        try:
            every, overwrite = options.checkpoint_every, options.overwrite
            pipeline.run(config, out, options.resume, listener, every, overwrite=overwrite)
        except Stopped as stopped:
            display.bars.stop()
            print(f"stopped {stopped}; go on with: fedpn run --resume --out {out}", file=sys.stderr)
            return 130
    print(f"\n{report.text([out])}\n\nreport: {out / 'report.html'}")
    return 0


def _config(options: argparse.Namespace) -> "Config":
    """Lays what was typed over the config file, and that over the run to go on with."""
    from fedpn.core.settings import leaves, parse_setting, read_toml
    from fedpn.runs.config import resolve
    from fedpn.runs.directory import refuse_strange_code, stored

    layers = []
    if options.config and options.config.endswith(".toml"):
        layers.append(read_toml(Path(options.config)))
    elif options.config and options.dataset is not None:
        raise UserError(f"data are named twice: {options.config} and --dataset {options.dataset}")
    elif options.config:
        options.dataset = options.config
    if options.resume:
        if options.out is None:
            raise UserError("--resume needs --out: the directory of the run to go on with")
        kept = stored(options.out)
        if not options.trust:
            typed = [value for text in options.set for _, value in leaves(parse_setting(text))]
            refuse_strange_code(kept, [*typed, options.algorithm, options.router], options.out)
        layers.insert(0, kept)
    flags = ("dataset", "algorithm", "clients", "rounds", "seed")
    for name in flags:
        value = getattr(options, name)
        if value is not None:
            # Names are texts as they stand; numbers are read as in --set.
            plain = name in ("dataset", "algorithm")
            layers.append({name: value} if plain else parse_setting(f"{name}={value}"))
    if options.device is not None:
        layers.append({"engine": {"device": options.device}})
    if options.router is not None:
        switched = {} if options.router in ("auto", "none") else {"rule": "quantiles"}
        layers.append({"routing": {"router": options.router, **switched}})
    promised = {name: getattr(options, name) for name in ("risk", "sets")}
    typed = [f"routing.{name}={value}" for name, value in promised.items() if value is not None]
    typed += [] if options.unseen is None else [f"data.unseen={options.unseen}"]
    layers += [parse_setting(text) for text in (*typed, *options.set)]
    config = resolve(layers)
    _refuse_idle(options.set, config)
    return config


def _refuse_idle(settings: list[str], config: "Config") -> None:
    """A setting of another algorithm would change nothing, and nobody would notice."""
    from fedpn.algorithms import ALGORITHMS

    for text in settings:
        section, dot, rest = text.partition(".")
        if dot and section in ALGORITHMS and section != config.algorithm:
            raise UserError(
                f"--set {text} changes nothing, for the algorithm is {config.algorithm}; "
                f"say --set method.{rest}"
            )
