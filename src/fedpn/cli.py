"""The command line: fedpn run | predict | export | report | algorithms."""

import argparse
import csv
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import fedpn
from fedpn.errors import UserError


class Parser(argparse.ArgumentParser):
    """Tells mistakes in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 2 for the user's mistakes, 1 for failures."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    try:
        options = _parser().parse_args(arguments)
        status: int = options.do(options) or 0
        return status
    except UserError as error:
        if debug:
            traceback.print_exc()
        print(f"fedpn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedpn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:  # a failure of ours: one line, unless asked for more
        if debug:
            traceback.print_exc()
        print(f"fedpn: failed: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        return 1


def _parser() -> Parser:
    parser = Parser(prog="fedpn", description=fedpn.__doc__)
    parser.add_argument("--version", action="version", version=f"fedpn {fedpn.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_predict(commands)
    _add_export(commands)
    _add_report(commands)
    _command(commands, "algorithms", _algorithms, "list the algorithms")
    return parser


def _command(
    commands: Any, name: str, do: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(do=do)
    return parser


def _add_run(commands: Any) -> None:
    text = "train, personalise, calibrate, evaluate and report"
    add = _command(commands, "run", _run, text).add_argument
    add("config", nargs="?", type=Path, metavar="CONFIG.toml", help="settings")
    add("--dataset", help="a named set, or a path to your own (default: digits)")
    add("--algorithm", help="see `fedpn algorithms`, or module:Class of your own (default: fedpn)")
    add("--clients", help="how many clients the rows are dealt to")
    add("--rounds", help="federated rounds")
    add("--seed", help="of everything that is drawn (default: 0)")
    add("--out", type=Path, help="the run directory (default: runs/DATASET-ALGORITHM-SEED)")
    add("--resume", action="store_true", help="go on with the run in --out")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="such as fedpn.gamma=0.02")


def _run(options: argparse.Namespace) -> None:
    from fedpn import pipeline, report
    from fedpn.config import parse_setting, read_toml, resolve
    from fedpn.console import Display

    layers = [read_toml(options.config)] if options.config else []
    if options.resume:
        if options.out is None:
            raise UserError("--resume needs --out: the directory of the run to go on with")
        layers.insert(0, pipeline.stored(options.out))
    flags = ("dataset", "algorithm", "clients", "rounds", "seed")
    for name in flags:
        value = getattr(options, name)
        if value is not None:
            # Names are texts as they stand; numbers are read as in --set.
            plain = name in ("dataset", "algorithm")
            layers.append({name: value} if plain else parse_setting(f"{name}={value}"))
    layers += [parse_setting(text) for text in options.set]
    config = resolve(layers)
    if options.resume:
        pipeline.refuse_changes(config, options.out)
    name = f"{Path(config.dataset).stem}-{config.algorithm.split(':')[-1]}-{config.seed}"
    out = options.out or Path("runs") / name
    with Display() as display:
        pipeline.run(config, out, options.resume, display)
    print(f"\n{report.text([out])}\n\nreport: {out / 'report.html'}")


def _add_predict(commands: Any) -> None:
    text = "answer for one client's inputs, each with its source and reason"
    add = _command(commands, "predict", _predict, text).add_argument
    add("run", type=Path, metavar="RUN", help="a finished run, or an exported folder")
    add("inputs", type=Path, metavar="INPUT", help="an .npz with `images` (or `x`), or a folder of images")
    add("--client", help="whose models answer; needed where there are several")
    add("--out", type=Path, help="answers.csv or answers.jsonl (default: a table on the terminal)")


def _predict(options: argparse.Namespace) -> None:
    from fedpn.inputs import read_inputs
    from fedpn.predict import load

    predictor = load(options.run, options.client)
    names, inputs = read_inputs(options.inputs, predictor.bundle.blueprint.shape)
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
    import io

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
    add = _command(commands, "export", _export, text).add_argument
    add("run", type=Path, metavar="RUN", help="a finished run")
    add("--client", help="whose")
    add("--out", type=Path, required=True, help="the new folder")


def _export(options: argparse.Namespace) -> None:
    from fedpn.bundle import export

    bundle = export(options.run, options.client, options.out)
    print(f"client {bundle.client}: {options.out} (try: fedpn predict {options.out} INPUT)")


def _add_report(commands: Any) -> None:
    text = "print the table of one run, or of several seeds, and write its page"
    add = _command(commands, "report", _report, text).add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="runs that differ in their seed alone")
    add("--out", type=Path, help="the page (default: report.html in a single run)")


def _report(options: argparse.Namespace) -> None:
    from fedpn import report

    print(report.text(options.runs))
    out = options.out or (options.runs[0] / "report.html" if len(options.runs) == 1 else None)
    if out is not None:
        report.write_page(options.runs, out)
        print(f"\nreport: {out}")


def _algorithms(options: argparse.Namespace) -> None:
    from fedpn.algorithms import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        line = (algorithm.__doc__ or "").split("\n")[0]
        print(f"{name:<10}  {line}")


if __name__ == "__main__":
    sys.exit(main())
