"""fedpn calibrate and fedpn score: labelled rows for a finished model."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError
from fedpn.core.plain import plain


def add(commands: Any) -> None:
    text = "learn a client's thresholds and promises anew from labelled rows"
    option = _common(commands, "calibrate", _calibrate, text)
    option("--out", type=Path, required=True, help="the client's new folder")
    option("--risk", type=float, help="promise that at most this share of answers is wrong")
    option("--sure", type=float, help="the chance with which that holds (default: 0.9)")
    option("--sets", type=float, help="sets of classes miss the true one at most this often")
    text = "judge a client's answers to labelled rows"
    option = _common(commands, "score", _score, text)
    option("--own-share", default="auto", help="of inputs like the client's own: auto, or 0 to 1")
    option("--out", type=Path, help="a .json file for all figures")


def _common(commands: Any, name: str, do: Any, text: str) -> Any:
    option = command(commands, name, do, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run, or an exported folder")
    option("rows", metavar="ROWS", help="labelled rows: a table, an .npz, a folder of images")
    option("--client", help="whose models answer; needed where there are several")
    option("--label", default="", help="of a table, the column (default: label)")
    option("--group", default="", help="of a table, the column of what rows belong to")
    return option


def _rows(options: argparse.Namespace, bundle: Any) -> Any:
    from fedpn.serving.labelled import read_labelled

    try:
        return read_labelled(options.rows, bundle, options.label, options.group)
    except UserError as error:  # which speaks of settings of a run
        told = str(error).replace("--set data.label=…", "--label NAME")
        raise UserError(told.replace("--set data.group=…", "--group NAME")) from None


def _calibrate(options: argparse.Namespace) -> None:
    from fedpn.serving.labelled import calibrate
    from fedpn.serving.predict import load

    changes = {name: getattr(options, name) for name in ("risk", "sure", "sets")}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name, value in changes.items():
        if not 0 < value < 1:
            raise UserError(f"--{name} is {value:g}, but must lie between 0 and 1")
    rows = _rows(options, load(options.run, options.client).bundle)
    found = calibrate(options.run, options.client, rows, options.out, **changes)
    count, single = len(rows.y), len(rows.standing)
    once = f" (of {count}: copies and groups count once)" if single < count else ""
    print(f"thresholds from {single} rows{once}: {options.out}")
    for line in (found.words(), *found.remarks()):
        if line:
            print(plain(line))


def _score(options: argparse.Namespace) -> None:
    from fedpn.cli.commands.answer import own_share
    from fedpn.core.store import write_json
    from fedpn.serving.labelled import score
    from fedpn.serving.predict import load

    predictor = load(options.run, options.client)
    rows = _rows(options, predictor.bundle)
    found = score(predictor, rows, own_share(options.own_share))
    if options.out is not None:
        write_json(options.out, found)
    for name, value in found.items():
        if isinstance(value, int | float):
            shown = str(value) if isinstance(value, int) else f"{value:.3f}"
            print(f"{name.replace('_', ' ')}: {shown}")
    for name, share in found["outcomes"].items():
        print(f"  {name.replace('_', ' ')}: {100 * share:.1f} %")
    by_class = found.get("by_class")
    if by_class is None:  # of too many classes
        return
    columns = (predictor.bundle.classes, by_class["rows"], by_class["recall"])
    print("class\trows\tfound")
    for name, count, recall in zip(*columns, strict=True):
        print(f"{plain(name)}\t{count}\t{'–' if recall is None else f'{100 * recall:.1f} %'}")
