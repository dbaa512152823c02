"""fedpn predict and fedpn export: answers, and a client's means of answering."""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import TRUST
from fedpn.core.errors import UserError
from fedpn.core.plain import plain
from fedpn.core.rows import write_rows

SECONDS = 5.0  # between two lines of progress
FIRST = 100  # rows that tell how wide columns are
SHOWN = ("answer", "confidence", "source", "outcome", "reason")


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
    option(
        "--out", type=Path, help="a .csv, .jsonl, .parquet or .md file (default: on the terminal)"
    )
    option(
        "--id",
        action="append",
        default=[],
        metavar="COLUMN",
        help="of a table, a column that passes through beside the answers; may be repeated",
    )
    option("--overwrite", action="store_true", help="replace the file that is at --out")
    option("--trust", action="store_true", help=TRUST)
    option(
        "--own-share",
        default="auto",
        help="of inputs like the client's own, for Bayes' rule: auto learns it from these inputs, "
        "without labels; or a number from 0 to 1",
    )


def _predict(options: argparse.Namespace) -> None:
    from fedpn.routing.bayes import Bayes
    from fedpn.routing.outcomes import Outcome
    from fedpn.serving.inputs import input_parts
    from fedpn.serving.predict import load
    from fedpn.serving.stream import answer_parts

    _refuse_loss(options)
    predictor = load(options.run, options.client, options.trust)
    bundle, began = predictor.bundle, time.monotonic()
    about = bundle.about
    parts = input_parts(
        options.inputs, about.blueprint.shape, about.features, options.id, recipe=about.recipe
    )

    known = 0  # inputs that are not strangers to everybody

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal known
        done, shown, remarked = 0, began, False
        for part, answers in answer_parts(predictor, parts, own_share(options.own_share)):
            if part.remark and not remarked:
                print(f"{options.inputs}: {part.remark}", file=sys.stderr)
                remarked = True
            for i, (name, answer) in enumerate(zip(part.names, answers, strict=True)):
                passed = {column: values[i] for column, values in part.others.items()}
                row = {"input": name} | answer.row()
                if row.keys() & passed.keys():
                    clash = min(row.keys() & passed.keys())
                    raise UserError(f"--id {clash}: answers have a column of that name; rename it")
                yield {"input": name} | passed | row
            done += len(answers)
            known += sum(answer.outcome != Outcome.STRANGER.label for answer in answers)
            if time.monotonic() - shown > SECONDS:
                shown = time.monotonic()
                rate = done / (shown - began)
                print(f"{done} answered  {rate:.0f}/s", file=sys.stderr, flush=True)

    if options.out is None:
        _print(rows(), options.id)
    else:
        print(f"{write_rows(options.out, rows())} answers: {options.out}")
    if known and predictor.own_share is not None and isinstance(bundle.rule, Bayes):
        share = 100 * predictor.own_share
        print(f"{share:.0f} % of these inputs are taken for the client's own", file=sys.stderr)


def _refuse_loss(options: argparse.Namespace) -> None:
    """Answers must not take the place of what they answer, nor of anything by chance."""
    out = options.out
    if out is None or not out.exists():
        return
    if options.inputs.exists() and out.samefile(options.inputs):
        raise UserError(f"--out {out} is the input itself: name another file")
    if not options.overwrite:
        raise UserError(f"--out {out} is there already: name another file, or give --overwrite")


def _print(rows: Iterator[dict[str, Any]], columns: list[str]) -> None:
    """Lines with tabs for other programs; for people, in columns as wide as the first rows need."""
    lines = (_cells(row, columns) for row in rows)
    first = list(islice(lines, FIRST))  # before anything is printed: the file may be none
    table = [["input", *map(plain, columns), *SHOWN], *first]
    if not sys.stdout.isatty():
        for cells in chain(table, lines):
            print("\t".join(cells))
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in chain(table, lines):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join(padded).rstrip())


def _cells(row: dict[str, Any], columns: list[str]) -> list[str]:
    said = row["label"] if row["label"] is not None else f"no answer (perhaps {row['guess']})"
    cells = [row["input"], *(row[name] for name in columns), said, f"{row['confidence']:.3f}"]
    return [plain(str(cell)) for cell in (*cells, row["source"], row["outcome"], row["reason"])]


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
    option("--onnx", action="store_true", help="add model.onnx: from inputs to who answers what")
    option("--trust", action="store_true", help=TRUST)


def _export(options: argparse.Namespace) -> None:
    from fedpn.serving.export import export

    def add_onnx(folder: Path) -> None:
        from fedpn.serving.onnx import FILE, write_onnx
        from fedpn.serving.predict import load

        write_onnx(load(folder, trust=options.trust), folder / FILE)

    more = {"more": add_onnx} if options.onnx else {}
    bundle = export(options.run, options.client, options.out, options.trust, **more)
    print(f"client {bundle.client}: {options.out} (try: fedpn predict {options.out} INPUT)")
