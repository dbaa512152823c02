"""Blocks of code in the docs: what they are, and whether they say that they are not run."""

import re
import sys
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))  # where the generated pages are made

FENCE = re.compile(
    r"(?P<before>[^\n]*\n)?"
    r"^(?P<indent> *)```(?P<kind>\w*)(?P<about>[^\n]*)\n(?P<body>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
TITLE = re.compile(r'title="([\w.-]+)"')
COMMANDS = ("fedpn", "make", "pip", "curl", "python", "for", "cd", "flwr")

# Pages all of whose blocks are left, and why: they are written by hand of what other tests play.
LEFT = {
    "docs/flower.md": "needs several machines; tests/flower plays certificates, nodes and runs",
    "docs/operating.md": "needs a federation of several machines that runs",
    "CHANGELOG.md": "tells what was",
}


class Block(NamedTuple):
    """A block of a page."""

    page: str
    line: int
    kind: str  # shell, python, or text
    title: str  # the file that it is saved as
    body: str
    why_not: str  # why it is not run, where it is not

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks_of(page, text):
    """The blocks of a page, in their order."""
    for found in FENCE.finditer(text):
        body = dedent(found["body"])
        title = TITLE.search(found["about"])
        said = NOT_RUN.search(found["before"] or "")
        line = text.count("\n", 0, found.start("body"))
        name, why = title[1] if title else "", said[1] if said else LEFT.get(page, "")
        yield Block(page, line, _kind(found["kind"], body), name, body, why)


def _kind(language, body):
    if language in ("python", "pycon"):
        return "python"
    typed = any(line.split()[:1] and line.split()[0] in COMMANDS for line in body.splitlines())
    return "shell" if language in ("", "sh", "bash", "console") and typed else "text"


@cache
def pages():
    """Return all pages of the site that people read, by where they lie."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    found = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    del found["docs/reference/api.md"]  # its examples are doctests of the code
    return found
