"""A run on a SuperLink: the thin app submitted with its settings, then followed to its end.

The settings go as a TOML file, which Flower reads whole, so that nothing needs quoting: `config` is
plain JSON.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.core.errors import UserError
from fedpn.core.settings import read_toml
from fedpn.core.store import write_text, write_toml
from fedpn.flower.deploy import control
from fedpn.flower.deploy.environment import environment, program
from fedpn.flower.deploy.home import NAME
from fedpn.flower.deploy.processes import Child, Failure

if TYPE_CHECKING:
    from fedpn.runs.config import Config

Event = dict[str, Any]
PATIENCE = 60.0  # seconds for a SuperLink to come back
RESUME = "go on with the same command and --resume"
_EVENT = re.compile(r"fedpn-event: (\{.*\})")


@dataclass(frozen=True)
class Order:
    """What a run is told; the keys are those of the thin app."""

    config: "Config"
    out: str  # on the SuperLink's machine
    resume: bool
    nodes: int
    timeout: float  # seconds to wait for nodes
    round_timeout: float  # seconds for the replies of one round
    secure: bool = False  # whether uploads are masked
    base: str = ""  # a finished run, which nodes join or leave
    leaves: str = ""  # who leaves it

    @property
    def again(self) -> str:
        """What to do where it ended too early."""
        if self.base:
            return f"{self.base} is as it was and {self.out} is not there: type the same again"
        return RESUME

    def settings(self) -> dict[str, Any]:
        from fedpn.runs.config import to_tree  # PyTorch: others start meanwhile

        return {
            "config": json.dumps(to_tree(self.config), ensure_ascii=False),
            "out": self.out,
            "resume": self.resume,
            "nodes": self.nodes,
            "timeout": self.timeout,
            "round-timeout": self.round_timeout,
            "secure": self.secure,
            "base": self.base,
            "leaves": self.leaves,
        }


def write_app(place: Path) -> None:
    """Writes the thin app: what it runs is the fedpn that is installed on each machine."""
    app = resources.files("fedpn.flower") / "thin" / "pyproject.toml"
    write_text(place / "pyproject.toml", app.read_text(encoding="utf-8"))


def make_app(config: Path, scratch: Path) -> tuple[Path, list[str]]:
    """Makes the app of a run; returns it with the user's own modules that travel in it.

    They are those beside a config that `fedpn flower init` made. Nothing else travels: Flower would
    take all texts below, results and data of the operator's among them.
    """
    beside, app = config.resolve().parent, scratch / "app"
    app.mkdir()
    write_app(app)
    own = beside / "pyproject.toml"
    if not own.is_file() or not read_toml(own).get("tool", {}).get("flwr"):
        return app, []
    modules = sorted(beside.glob("*.py"))
    for path in (own, *modules):
        shutil.copy(path, app)
    return app, [path.name for path in modules]


def submit(home: Path, app: Path, order: Order) -> str:
    """Submits a run; returns its number."""
    settings = home / "run.toml"
    write_toml(settings, order.settings())
    return control.start(home, app, settings)


def follow(
    home: Path,
    run: str,
    hear: Callable[[Event], None],
    log: Callable[[str], None],
    again: str = RESUME,
) -> str:
    """Hears a run's events to its end; returns where it wrote its results."""
    last = ""
    for line in _words(home, run, again):
        event = read_event(line)
        if event is None:
            log(line)
            last = line.strip() or last
        elif "error" in event:
            raise (UserError if event.get("status") == 2 else Failure)(event["error"])
        elif isinstance(event.get("done"), str):
            return str(event["done"])
        else:
            hear(event)
    state, why = control.status(home, run)
    if state == control.STOPPED:
        raise Failure(f"the run was stopped; {again}")
    raise Failure(f"the run ended as {state}: {last if why == 'N/A' else why}")


def read_event(line: str) -> Event | None:
    """What the server says of itself, among other lines.

    >>> read_event('INFO :      fedpn-event: {"stage": "federate", "done": 1, "of": 3}')
    {'stage': 'federate', 'done': 1, 'of': 3}
    >>> read_event("INFO :      Starting") is None
    True
    """
    found = _EVENT.search(line)
    if found is None:
        return None
    try:
        event = json.loads(found[1])
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _words(home: Path, run: str, again: str) -> Iterator[str]:
    """The lines of a run's log, once each, though the connection be lost meanwhile."""
    heard = 0
    while True:
        command = [program("flwr"), "log", run, NAME, "--stream"]
        with Child("flwr log", command, environment(home)) as child:
            assert child.process.stdout is not None
            events = 0
            for raw in child.process.stdout:
                line = raw.decode(errors="replace").rstrip("\n")
                if read_event(line) is not None:
                    events += 1
                    if events <= heard:
                        continue  # a new connection tells all from the beginning
                    heard = events
                yield line
        if _finished(home, run, again):
            return


def _finished(home: Path, run: str, again: str) -> bool:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return control.status(home, run)[0].startswith("finished")
        except Failure:
            if time.monotonic() > until:
                raise Failure(
                    f"the SuperLink no longer answers; when it is back, {again}"
                ) from None
            time.sleep(2)
