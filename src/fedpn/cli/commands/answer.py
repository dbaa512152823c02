"""fedpn predict and fedpn export: answers, and a client's means of answering."""

import argparse
import sys
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.rows import write_rows
from fedpn.core.errors import UserError
from fedpn.core.plain import plain

TRUST = "run the code that this folder names (a router, a rule or a head of somebody's own)"


def add(commands: Any) -> None:
    _add_predict(commands)
    _add_export(commands)


def _add_predict(commands: Any) -> None:
    text = "answer for one client's inputs, each with its source and reason"
    option = command(commands, "predict", _predict, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run, or an exported folder")
    option(
        "inputs",
        type=Path,
        metavar="INPUT",
        help="an .npz with `images` (or `x`), a table, or a folder of images",
    )
    option("--client", help="whose models answer; needed where there are several")
    option("--out", type=Path, help="a .csv, .jsonl or .md file (default: lines on the terminal)")
    option("--trust", action="store_true", help=TRUST)
    option(
        "--own-share",
        default="auto",
        help="of inputs like the client's own, for Bayes' rule: auto learns it from these inputs, "
        "without labels; or a number from 0 to 1",
    )


def _predict(options: argparse.Namespace) -> None:
    from fedpn.routing.bayes import Bayes
    from fedpn.serving.inputs import read_inputs
    from fedpn.serving.predict import load

    predictor = load(options.run, options.client, options.trust)
    bundle = predictor.bundle
    names, inputs, remark = read_inputs(options.inputs, bundle.blueprint.shape, bundle.features)
    if remark:
        print(f"{options.inputs}: {remark}", file=sys.stderr)
    answers = predictor(inputs, own_share(options.own_share))
    if predictor.own_share is not None and isinstance(bundle.rule, Bayes):
        share = 100 * predictor.own_share
        print(f"{share:.0f} % of these inputs are taken for the client's own", file=sys.stderr)
    rows = [{"input": name} | a.row() for name, a in zip(names, answers, strict=True)]
    if options.out is None:
        print("input\tanswer\tconfidence\tsource\toutcome\treason")
        for name, a in zip(names, answers, strict=True):
            said = a.label if a.label is not None else f"no answer (perhaps {a.guess})"
            cells = (str(name), said, f"{a.confidence:.3f}", a.source, a.outcome, a.reason)
            print("\t".join(map(plain, cells)))
        return
    write_rows(options.out, rows)
    print(f"{len(rows)} answers: {options.out}")


def own_share(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--own-share is {text!r}; use auto or a number from 0 to 1") from None


def _add_export(commands: Any) -> None:
    text = "write one client's models, thresholds and provenance to a folder of its own"
    option = command(commands, "export", _export, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run")
    option("--client", help="whose")
    option("--out", type=Path, required=True, help="the new folder")
    option("--trust", action="store_true", help=TRUST)


def _export(options: argparse.Namespace) -> None:
    from fedpn.serving.bundle import export

    bundle = export(options.run, options.client, options.out, options.trust)
    print(f"client {bundle.client}: {options.out} (try: fedpn predict {options.out} INPUT)")
