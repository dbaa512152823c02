"""What is asked of a SuperLink, by Flower's own tool."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpn.flower.deploy.environment import environment, program
from fedpn.flower.deploy.home import NAME
from fedpn.flower.deploy.processes import Failure

SECONDS = 90.0
KNOWN = "[code: 23]"  # a public key that is registered already
STOPPED = "finished:stopped"
ENDED = "[code: 18]"  # a run that has ended


def ask(home: Path, *words: str) -> dict[str, Any]:
    """Runs one of Flower's commands and reads its answer."""
    done = call(home, [program("flwr"), *words, "--format", "json"], f"flwr {words[0]}")
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Failure(f"flwr {words[0]}: {last_line(done.stderr or done.stdout)}") from None
    if not answer.get("success"):
        raise Failure(f"flwr {words[0]}: {last_line(str(answer.get('error-message')))}")
    return answer


def call(home: Path, command: Sequence[str], name: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that asks a SuperLink, in Flower's environment."""
    try:
        return subprocess.run(
            command,
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            start_new_session=True,  # Ctrl-C is ours to hear
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} got no answer in {SECONDS:.0f} s") from None


def last_line(text: str) -> str:
    """The line that says what is wrong, after those that say what was done."""
    lines = [line.strip(" │╭╰─╮╯") for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith("For more information")]
    return said[-1] if said else "no word of why"


def register(home: Path, key: Path) -> bool:
    """Lets a node in by its public key; tells whether it is new."""
    try:
        ask(home, "supernode", "register", str(key), NAME, "--name", key.stem)
    except Failure as failure:
        if KNOWN in str(failure):
            return False
        raise
    return True


def start(home: Path, app: Path, settings: Path) -> str:
    """Submits an app with its settings, a TOML file; returns the run's number."""
    return str(ask(home, "run", str(app), NAME, "--run-config", str(settings))["run-id"])


def status(home: Path, run: str) -> tuple[str, str]:
    """How a run stands, such as `finished:failed`, and why."""
    found = ask(home, "ls", NAME, "--run-id", run)["runs"][0]
    return str(found["status"]), str(found["status-details"])


def going(home: Path) -> list[str]:
    """The runs that have not ended, the oldest first."""
    runs = ask(home, "ls", NAME)["runs"]
    open_ = [run for run in runs if not str(run["status"]).startswith("finished")]
    return [str(run["run-id"]) for run in sorted(open_, key=lambda run: str(run["pending-at"]))]


def unregister(home: Path, node: int) -> None:
    """Bars a node, by its number."""
    ask(home, "supernode", "unregister", str(node), NAME)


def stop(home: Path, run: str) -> None:
    """Stops a run, unless it has ended by itself."""
    try:
        ask(home, "stop", run, NAME)
    except Failure as failure:
        if ENDED not in str(failure):
            raise
