"""What a look at one thing found."""

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(NamedTuple):
    """How one thing is, what was seen, and the way out where it is not well."""

    level: str
    what: str
    said: str
    way: str = ""


def ok(what: str, said: str) -> Finding:
    return Finding(OK, what, said)


def warn(what: str, said: str, way: str) -> Finding:
    return Finding(WARN, what, said, way)


def fail(what: str, said: str, way: str) -> Finding:
    return Finding(FAIL, what, said, way)
