"""What is asked of a SuperLink, by Flower's own tool."""

import json
import subprocess
from pathlib import Path
from typing import Any

from fedpn.flower.deploy.environment import environment, program
from fedpn.flower.deploy.home import NAME
from fedpn.flower.deploy.processes import Failure

SECONDS = 90.0
KNOWN = "[code: 23]"  # a public key that is registered already
ENDED = "[code: 18]"  # a run that has ended


def ask(home: Path, *words: str) -> dict[str, Any]:
    """Runs one of Flower's commands and reads its answer."""
    command = [program("flwr"), *words, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"flwr {words[0]} got no answer in {SECONDS:.0f} s") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Failure(f"flwr {words[0]}: {last_line(done.stderr or done.stdout)}") from None
    if not answer.get("success"):
        raise Failure(f"flwr {words[0]}: {last_line(str(answer.get('error-message')))}")
    return answer


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


def stop(home: Path, run: str) -> None:
    """Stops a run, unless it has ended by itself."""
    try:
        ask(home, "stop", run, NAME)
    except Failure as failure:
        if ENDED not in str(failure):
            raise
