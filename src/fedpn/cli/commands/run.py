"""fedpn run."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import add_settings, named_values, refuse_idle, typed_layers
from fedpn.core.errors import UserError

if TYPE_CHECKING:
    from fedpn.runs.config import Config


def add(commands: Any) -> None:
    text = "train, personalise, calibrate, evaluate and report"
    option = command(commands, "run", _run, text).add_argument
    add_settings(option)
    option("--out", type=Path, help="the run directory (default: runs/DATASET-ALGORITHM-SEED)")
    option("--checkpoint-every", type=int, metavar="N", help="rounds (default: about 30 s)")
    option("--tensorboard", action="store_true", help="write event files into the run directory")
    option("--mlflow", action="store_true", help="log to MLflow")
    option("--resume", action="store_true", help="go on with the run in --out")
    option("--overwrite", action="store_true", help="replace the run that is in --out")


def _run(options: argparse.Namespace) -> int:
    from fedpn.cli.console import Display, Interrupt
    from fedpn.core.allocator import keep_freed_memory
    from fedpn.core.settings import named_code
    from fedpn.federated.listener import Announcing, Stopped
    from fedpn.reporting import report
    from fedpn.runs import pipeline
    from fedpn.runs.config import to_tree
    from fedpn.runs.directory import refuse_changes
    from fedpn.runs.trackers import TRACKERS, find_tracker

    if options.checkpoint_every is not None and options.checkpoint_every < 1:
        raise UserError(f"--checkpoint-every is {options.checkpoint_every}, but must be at least 1")
    trackers = [find_tracker(name) for name in TRACKERS if getattr(options, name)]
    config, remark = _config(options)
    keep_freed_memory()
    if options.resume:
        refuse_changes(config, options.out)
    name = f"{Path(config.dataset).stem}-{config.algorithm.split(':')[-1]}-{config.seed}"
    out = options.out or Path("runs") / name
    with Interrupt() as interrupt, Display(interrupt) as display:
        listener = Announcing([display, *trackers], remark)
        try:
            every, overwrite = options.checkpoint_every, options.overwrite
            pipeline.run(config, out, options.resume, listener, every, overwrite=overwrite)
        except Stopped as stopped:
            display.bars.stop()
            trust = " --trust" if named_code(to_tree(config)) else ""
            again = f"fedpn run --resume --out {out}{trust}"
            print(f"stopped {stopped}; go on with: {again}", file=sys.stderr)
            return 130
    print(f"\n{report.closing(out)}\n\nreport, with all figures: {out / 'report.html'}")
    return 0


def _config(options: argparse.Namespace) -> tuple["Config", str]:
    """Lay what was typed over the config file, and that over the run to go on with; return the
    settings, and which of them are a default that is worth a sentence."""
    from fedpn.core.settings import need_trust
    from fedpn.runs.config import chosen_dataset, resolve
    from fedpn.runs.defaults import default_for
    from fedpn.runs.directory import stored

    layers = typed_layers(options)
    if options.resume:
        if options.out is None:
            raise UserError("--resume needs --out: the directory of the run to go on with")
        kept = stored(options.out)
        need_trust(kept, f"--resume: {options.out}", options.trust, named_values(layers))
        layers.insert(0, kept)
    default = default_for(layers, chosen_dataset(layers))
    config = resolve([default.settings, *layers])
    refuse_idle(options.set, [config.algorithm])
    return config, default.remark
