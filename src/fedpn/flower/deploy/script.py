"""Runs one of Flower's programs so that it ends when a part of it fails.

Flower's own would stay, half alive, and nobody would know: a SuperNode whose worker or heartbeat
fell over one error of the SuperLink's keeps its other threads, and a SuperLink whose executor of
tasks is gone still answers.
"""

import contextlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from types import SimpleNamespace

PAUSE = 0.5  # seconds between two looks for messages, which others must answer
NEAR = 0.1  # between two looks at what is on this machine
SECONDS = 5.0  # in which one who wants to know how a process ended has asked


def main() -> None:
    """Runs the script that the command line names, with the words after it."""
    sys.argv = sys.argv[1:]
    threading.excepthook = _end_with_thread
    if hasattr(os, "waitid"):
        threading.Thread(target=_end_with_child, daemon=True).start()
    if Path(sys.argv[0]).name == "flower-supernode":
        _look_often()
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)  # though other threads go on


def _look_often() -> None:
    """Has a SuperNode look for messages more often than every three seconds, for replies more
    often than every half, and for parts of a message that are still on their way at once."""
    with contextlib.suppress(ImportError):
        from flwr.supernode import start_client_internal as internal

        brisk = SimpleNamespace(**vars(time))
        brisk.sleep = lambda seconds: time.sleep(PAUSE if seconds > PAUSE else NEAR)
        vars(internal)["time"] = brisk
        pull = vars(internal)["pull_objects"]
        vars(internal)["pull_objects"] = partial(pull, initial_backoff=NEAR)


def _end_with_thread(failed: threading.ExceptHookArgs) -> None:
    threading.__excepthook__(failed)
    if not issubclass(failed.exc_type, SystemExit):
        _ask_to_end()


def _end_with_child() -> None:
    """Ends when a program that was started here has ended, and nobody has asked how."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            time.sleep(SECONDS)
            if ended and os.waitid(os.P_PID, ended.si_pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                print(f"a part of {sys.argv[0]} has ended", file=sys.stderr, flush=True)
                return _ask_to_end()
        except ChildProcessError:  # none yet, or it was asked for
            time.sleep(1.0)


def _ask_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
