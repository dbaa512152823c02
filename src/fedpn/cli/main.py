"""The command line: fedpn run | sweep | predict | export | report | compare | data …"""

import argparse
import os
import signal
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import fedpn
from fedpn.cli.commands import (
    answer,
    completion,
    data,
    doctor,
    flower,
    labelled,
    membership,
    run,
    serve,
    sweep,
    tables,
)
from fedpn.cli.version import version
from fedpn.cli.welcome import welcome
from fedpn.core.errors import UserError
from fedpn.core.extras import hint
from fedpn.core.plain import plain

FAMILIES = (
    *(run, sweep, answer, serve, labelled, membership),
    *(tables, data, doctor, flower, completion),
)


# Where code lives that is not the user's own.
LIBRARIES = (
    str(Path(fedpn.__file__).parent),
    *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
)


class Parser(argparse.ArgumentParser):
    """Tells mistakes in one sentence; half an option is none, and not another's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | kwargs)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


class Version(argparse.Action):
    """Says which fedpn this is; git is asked only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        print(version())
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 2 for the user's mistakes, 1 for failures."""
    if arguments is None:  # as the program
        status = main(sys.argv[1:])
        # What was asked for is done; PyTorch takes its time to go, and must not be interrupted.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return status
    # Before PyTorch is loaded: threads that wait shall sleep, not spin, for others want the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    debug = "--debug" in arguments
    if not arguments:
        print(welcome(Path.cwd()))
        return 0
    try:
        options = _parser().parse_args(arguments)
        done: int = options.do(options) or 0
        return done
    except UserError as error:
        if debug:
            traceback.print_exc()
        print(f"fedpn: {plain(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedpn: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:  # one line, unless asked for more
        if debug:
            traceback.print_exc()
        print(f"fedpn: {plain(failure(error))}", file=sys.stderr)
        return 1


def failure(error: Exception) -> str:
    """What the machine refuses, in words; else a failure of ours.

    >>> failure(PermissionError(13, "Permission denied", "/etc/x"))
    '/etc/x: Permission denied'
    >>> failure(ModuleNotFoundError("No module named 'flwr'", name="flwr"))
    "this needs flwr: pip install 'fedpn[flower]'"
    """
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "there is not enough memory: take fewer rows, a smaller model or smaller batches"
    if isinstance(error, ModuleNotFoundError) and hint(error.name):
        return f"this needs {error.name}: {hint(error.name)}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"failed: {type(error).__name__}: {error} ({_where(error)}--debug shows all of it)"


def _where(error: Exception) -> str:
    """Return the line of the user's own code that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not frame.filename.startswith((*LIBRARIES, "<")):
            return f"{frame.filename}, line {frame.lineno}: {frame.line}; "
    return ""


def _parser() -> Parser:
    parser = Parser(prog="fedpn", description=fedpn.__doc__)
    parser.add_argument("--version", action=Version, help="show the version and its commit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for family in (*FAMILIES, *_plugins()):
        family.add(commands)
    parser.set_defaults(parser=parser)
    return parser


def _plugins() -> Iterator[Any]:
    """Commands of other packages, such as `fedpn paper`: modules with `add(commands)`."""
    for entry in entry_points(group="fedpn.commands"):
        yield entry.load()


if __name__ == "__main__":
    sys.exit(main())
