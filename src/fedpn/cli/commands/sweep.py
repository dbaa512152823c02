"""fedpn sweep."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import add_settings, config_file, refuse_idle, typed_layers
from fedpn.core.errors import UserError
from fedpn.core.extras import hint, is_here
from fedpn.core.plain import plain

if TYPE_CHECKING:
    from fedpn.runs.studies.conduct import Study


def add(commands: Any) -> None:
    text = "try values of settings, several runs at a time, judged on tuning rows alone"
    option = command(commands, "sweep", _sweep, text).add_argument
    add_settings(option)
    option(
        "--over",
        action="append",
        required=True,
        metavar="KEY=VALUE,VALUE",
        help="such as fedpn.gamma=0.001,0.01 or algorithm=fedpn,ditto; several: all combinations",
    )
    option("--seeds", type=int, default=3, help="how many, from --seed on (default: 3)")
    option("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="at a time (default: 2)")
    option("--out", type=Path, help="the sweep's directory (default: sweeps/DATASET-ALGORITHM-KEY)")


def _sweep(options: argparse.Namespace) -> int:
    from fedpn.cli.console import Interrupt
    from fedpn.cli.overall import Overall

    if options.jobs < 1:
        raise UserError(f"--jobs is {options.jobs}, but must be at least 1")
    study = _study(options)
    with study.claimed():
        jobs = study.missing()
        there = len(study.cells) - len(jobs)
        already = f", {there} of which are there already" if there else ""
        if edited := study.edited():
            already += f"; {', '.join(edited)} was edited, so that cells are run again"
        print(f"{len(study.cells)} cells{already}: {study.out}", file=sys.stderr)
        with Overall(jobs) as display, Interrupt() as interrupt:
            wrong = study.play(options.jobs, display, interrupt)
        if interrupt():
            left = len(study.missing())
            print(f"stopped, {left} cells left; go on with the same command", file=sys.stderr)
            return 130
        for name, words in wrong.items():
            print(f"fedpn: {plain(name)} failed: {plain(words)}", file=sys.stderr)
        if len(study.missing()) == len(study.cells):
            return 1
        return _tell(study, wrong)


def _tell(study: "Study", wrong: dict[str, str]) -> int:
    found = study.outcome(wrong)
    found.write()
    print(f"\n{found!r}\n")
    picture = study.out / "sweep.png" if is_here("matplotlib") else f"needs {hint('matplotlib')}"
    print(f"cells: {study.out / 'sweep.csv'}  picture: {picture}")
    print(f"the best settings: {study.out / 'best.toml'}")
    return 1 if wrong else 0


def _study(options: argparse.Namespace) -> "Study":
    from fedpn.runs.studies.conduct import begin
    from fedpn.runs.studies.grid import Plan, parse_over, title_of

    axes = tuple(parse_over(text) for text in options.over)
    layers = tuple(typed_layers(options))
    plan = Plan(layers, axes, options.seeds, config_file(options))
    configs = list(plan.configs())
    refuse_idle(options.set, list(dict.fromkeys(config.algorithm for config in configs)))
    return begin(plan, options.out or Path("sweeps") / title_of(plan.keys, configs[0]))
