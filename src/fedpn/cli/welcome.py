"""What `fedpn` alone says: what one can do next, from here."""

from pathlib import Path

import fedpn
from fedpn.core.aligned import aligned
from fedpn.core.plain import plain

FIRST = [
    ("fedpn run", "train a federation on handwritten digits: a minute, and a report"),
    ("fedpn data check FILE", "what would be made of your own table, pictures or archive"),
    ("fedpn run FILE", "train a federation on them"),
]
AFTER = [
    ("fedpn predict {run} INPUTS --client NAME", "answers: who gives them, and why"),
    ("fedpn serve {run}", "answers over HTTP, with a page"),
    ("fedpn compare {run} OTHER", "methods side by side, and what is luck"),
]
LAST = ("fedpn --help", "all commands; fedpn COMMAND --help for each")


def welcome(place: Path) -> str:
    """A few lines; where there is a finished run, what to do with the newest."""
    done = [p.parent for p in place.glob("runs/*/metrics.json")]
    newest = max(done, key=lambda run: (run / "metrics.json").stat().st_mtime, default=None)
    name = "RUN" if newest is None else plain(str(newest.relative_to(place)))
    lines = [*FIRST, *((command.format(run=name), what) for command, what in AFTER), LAST]
    head = [f"fedpn {fedpn.__version__}: {(fedpn.__doc__ or '').lower()}", ""]
    found = [] if newest is None else ["", f"the newest run here: {name}/report.html"]
    return "\n".join([*head, *(f"  {line}" for line in aligned(lines, texts=2)), *found])
