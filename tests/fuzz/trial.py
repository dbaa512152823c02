"""How a reader is tried: often or for long, and what it may do with a file that means harm."""

import functools
import os
import resource
import signal
import sys
import time
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, settings

from fedpn.core.errors import UserError

SECONDS = float(os.environ.get("FEDPN_FUZZ_SECONDS", "0"))  # for each property; 0: the short form
HANGING = 60  # seconds; what reads these small files takes milliseconds
ROOM = 1 << 30  # bytes of memory that one file may take
LONGEST = 1500  # characters of a sentence
MANY = 500  # examples between two looks at the clock, in the long form

settings.register_profile(
    "fuzz",
    deadline=None,
    database=None,
    derandomize=not SECONDS,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    print_blob=bool(SECONDS),
)


def fuzz(examples):
    """Plays a property so many times, always the same; or with ever new examples for a while."""

    def decorate(test):
        profile = settings.get_profile("fuzz")
        drawn = settings(profile, max_examples=MANY if SECONDS else examples)(test)
        if not SECONDS:
            return drawn

        @functools.wraps(drawn, updated=())
        def play(*args, **kwargs):
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                drawn(*args, **kwargs)

        return play

    return decorate


def reads(read, *names):
    """Tells whether something is read; if not, one sentence names the file."""
    before = _peak()
    try:
        with at_once():
            read()
        told = None
    except UserError as error:
        told = str(error)
    assert _peak() - before < ROOM, "it takes absurd memory"
    if told is None:
        return True
    assert "\n" not in told, repr(told)
    assert len(told) < LONGEST, told[:LONGEST]
    assert all(str(name) in told for name in names), told
    return False


@contextmanager
def at_once():
    """Nothing hangs."""

    def late(*_):
        raise AssertionError("it hangs")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(HANGING)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _peak():
    """The most bytes of memory that this process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
