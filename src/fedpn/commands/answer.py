"""fedpn predict and fedpn export: answers, and a client's means of answering."""

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

from fedpn.commands.command import command
from fedpn.errors import UserError


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
        "--out", type=Path, help="answers.csv or answers.jsonl (default: a table on the terminal)"
    )


def _predict(options: argparse.Namespace) -> None:
    from fedpn.inputs import read_inputs
    from fedpn.predict import load

    predictor = load(options.run, options.client)
    bundle = predictor.bundle
    names, inputs = read_inputs(options.inputs, bundle.blueprint.shape, bundle.features)
    answers = predictor(inputs)
    rows = [{"input": name} | a.row() for name, a in zip(names, answers, strict=True)]
    if options.out is None:
        for name, a in zip(names, answers, strict=True):
            said = a.label if a.label is not None else f"no answer (perhaps {a.guess})"
            print(f"{name}\t{said}\t{a.confidence:.3f}\t{a.source}\t{a.outcome}\t{a.reason}")
        return
    _write_rows(options.out, rows)
    print(f"{len(rows)} answers: {options.out}")


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    from fedpn.store import write_text

    if path.suffix not in (".csv", ".jsonl"):
        raise UserError(f"--out {path}: the name must end in .csv or .jsonl")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no directory {path.parent}")
    file = io.StringIO()
    if path.suffix == ".csv":
        table = csv.DictWriter(file, list(rows[0]) if rows else ["input"])
        table.writeheader()
        table.writerows(rows)
    else:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(path, file.getvalue())


def _add_export(commands: Any) -> None:
    text = "write one client's models, thresholds and provenance to a folder of its own"
    option = command(commands, "export", _export, text).add_argument
    option("run", type=Path, metavar="RUN", help="a finished run")
    option("--client", help="whose")
    option("--out", type=Path, required=True, help="the new folder")


def _export(options: argparse.Namespace) -> None:
    from fedpn.bundle import export

    bundle = export(options.run, options.client, options.out)
    print(f"client {bundle.client}: {options.out} (try: fedpn predict {options.out} INPUT)")
