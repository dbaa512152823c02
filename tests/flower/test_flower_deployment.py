"""A real deployment: a SuperLink and three nodes over TLS with keys, as people start them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

import fedpn
from fedpn.cli.main import main
from fedpn.core.store import read_json, read_tensors
from fedpn.flower.deploy.processes import Child, Failure, free_port
from fedpn.runs.config import resolve
from fedpn.runs.pipeline import run as simulate
from fedpn.runs.prepare import deal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux tells them"),
]

NODES, MANY = 3, 12  # nodes, and rounds of a run in which much goes wrong
SETTINGS = {
    "dataset": "digits",
    "algorithm": "fedpn",
    "clients": NODES,
    "rounds": 3,
    "fedpn": {"adapt_steps": 60, "adapt_epochs": 1},
}
START = 120.0  # seconds, on a busy machine
STILL = 300.0  # in which neither the run nor a node says anything new
LONGEST = 1800.0
QUICK = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


class Deployment:
    """Programs in a directory, each with its log, taken down together."""

    def __init__(self, place: Path) -> None:
        self.place, self.port = place, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.variables = os.environ | QUICK
        self.children: list[Child] = []

    def fedpn(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).parent / "fedpn"), "flower", *words]

    def start(self, name: str, *words: str) -> Child:
        log = self.place / f"{name}.log"
        log.unlink(missing_ok=True)
        child = Child(name, self.fedpn(*words), self.variables, log)
        self.children.append(child)
        return child

    def start_link(self) -> None:
        words = ("superlink", "--certs", "certs/superlink", "--port", str(self.port))
        link = self.start("superlink", *self._here(words), "--database", str(self.place / "x.db"))
        link.wait_until(lambda: "is ready" in link.tail(200), START)

    def node_words(self, certs: str, name: str, part: int) -> list[str]:
        words = ("supernode", "--certs", certs, "--state", f"state-{name}")
        words = (*self._here(words), "--superlink", self.address, "--name", name)
        return [*words, "--partition", str(part), "--of", str(NODES)]

    def start_node(self, part: int) -> Child:
        name = f"node-{part}"
        return self.start(name, *self.node_words(f"certs/{name}", name, part))

    def refused(self, certs: str, *more: str) -> tuple[int, str]:
        """The status and the last words of a node that should not get in."""
        words = [*self.node_words(certs, "stranger", 0), *more]
        done = subprocess.run(
            self.fedpn(*words), capture_output=True, text=True, timeout=START, env=self.variables
        )
        return done.returncode, done.stderr.strip().splitlines()[-1]

    def run(self, out: str, *more: str) -> Child:
        words = self._here(("run", "config.toml", "--ca", "certs/ca.crt"))
        words = (*words, "--out", str(self.place / out), "--superlink", self.address)
        words = (*words, "--timeout", "900")  # for nodes to come, on a busy machine
        return self.start(out, *words, *more)

    def wait(self, run: Child, ready: Callable[[], bool]) -> None:
        """Waits as long as the run or a node says something new."""
        began = heard = time.monotonic()
        known: set[str] = set()
        while True:
            alive, now, said = run.alive, time.monotonic(), self._said()
            if ready():
                return
            if said - known:
                known, heard = said, now
            if now - heard > STILL or now - began > LONGEST or not alive:
                why = f"in {now - began:.0f} s, of which {now - heard:.0f} s without a new word"
                raise Failure(f"{run.name} was not ready {why}")
            time.sleep(0.05)

    def _said(self) -> set[str]:
        logs = (child.log for child in self.children if child.name != "superlink")
        return {line for log in logs if log for line in log.read_text().splitlines()}

    def _here(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Makes paths of those words that are names in this directory."""
        places = re.compile(r"certs(/.*)?|state-.*|config\.toml")
        first, *rest = words
        return (first, *(str(self.place / w) if places.fullmatch(w) else w for w in rest))

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *error: object) -> None:
        for child in self.children:
            print(f"--- {child.name}, last words:\n{child.tail(60)}")  # seen where the test fails
            child.ask_to_end()
        for child in self.children:
            child.stop()


def test_a_real_deployment(tmp_path, interruptible):
    """One test, because a federation that several share would be started by every worker."""
    (tmp_path / "config.toml").write_text(tomli_w.dumps(SETTINGS))
    seen = play(tmp_path)
    check_the_killed_node_found_its_state(tmp_path, seen)
    check_strangers_were_refused(seen)
    check_no_process_is_left(seen)
    check_faults_and_masks(tmp_path, seen)
    assert seen["stopped"] == 130
    assert not (tmp_path / "stopped" / "metrics.json").exists()
    # Each client by itself, as on a node: stacked ones round otherwise, and here thirty steps make
    # 1e-3 of that.
    simulated = tmp_path / "simulated"
    simulate(resolve([SETTINGS, {"engine": {"cohort": 1}}]), simulated)
    check_the_shared_model(tmp_path / "run", simulated)
    check_the_decisions(tmp_path, simulated)


def play(place: Path) -> dict[str, Any]:
    """A run is stopped before it begins; in another a node is killed between the two stages."""
    seen: dict[str, Any] = {}
    with Deployment(place) as deployment:
        make_certificates(deployment)
        deployment.start_link()
        nodes = [deployment.start_node(part) for part in range(NODES)]
        seen["stopped"] = stop_at_once(deployment)
        run = deployment.run("run")
        seen["unregistered"] = deployment.refused(f"certs/node-{NODES}", "--patience", "0")
        seen["alien"] = deployment.refused("certs/alien")
        pause_after_the_rounds(deployment, run, place / "state-node-1")
        nodes[1].kill()
        seen["killed"] = nodes[1].family(), (place / "state-node-1" / "bundle").exists()
        deployment.start_node(1)
        deployment.wait(run, lambda: not run.alive)
        seen["status"], seen["words"] = run.process.returncode, run.tail(200)
        seen["secure"] = play_secure(deployment)
        seen["faults"] = play_faults(deployment)
        ending = [child for child in deployment.children if child.alive]
        for child in ending:
            child.ask_to_end()
        seen["ended"] = {child.name: child.process.wait(180) for child in ending}
        seen["left"] = {child.name: child.family() for child in deployment.children}
    return seen


def pause_after_the_rounds(deployment: Deployment, run: Child, state: Path) -> None:
    """Halts a node's worker between the two stages; by its own word, for the run's comes later."""

    def rounds_are_over() -> bool:
        told = read_json(state / "status.json") if (state / "status.json").exists() else {}
        over = told.get("round") == SETTINGS["rounds"] and told["worker"] == "ready"
        if over:
            os.kill(told["pid"], signal.SIGSTOP)
        return over

    deployment.wait(run, rounds_are_over)
    deployment.wait(run, lambda: "federated rounds 3/3" in run.tail(200))


def play_secure(deployment: Deployment) -> tuple[int, str]:
    """A run under masks, over a real SuperLink."""
    run = deployment.run("secure", "--secure", "--set", "rounds=1")
    deployment.wait(run, lambda: not run.alive)
    return run.process.returncode, run.tail(200)


def play_faults(deployment: Deployment) -> tuple[int, str]:
    """A node's worker is killed in the middle of a run, then the server; the run goes on."""
    history = deployment.place / "faults" / "history.jsonl"
    run = deployment.run("faults", "--set", f"rounds={MANY}")

    def after(rounds: int) -> None:
        """Waits for so many rounds; the terminal does not show each."""
        done = lambda: history.exists() and len(history.read_text().splitlines()) >= rounds  # noqa: E731
        deployment.wait(run, lambda: done() or not run.alive)

    after(1)
    worker = read_json(deployment.place / "state-node-2" / "status.json")["pid"]
    os.kill(worker, signal.SIGKILL)
    after(4)
    link = next(child for child in deployment.children if child.name == "superlink")
    link.kill()
    run.process.wait(LONGEST)
    deployment.children.remove(link)
    deployment.start_link()
    again = deployment.run("faults", "--set", f"rounds={MANY}", "--resume")
    deployment.wait(again, lambda: not again.alive)
    return again.process.returncode, again.tail(200)


def stop_at_once(deployment: Deployment) -> int:
    run = deployment.run("stopped", "--nodes", str(NODES + 1))  # one more than will ever come
    run.wait_until(lambda: "waiting for" in run.tail(200), START)
    run.process.send_signal(signal.SIGINT)
    return run.process.wait(START)


def make_certificates(deployment: Deployment) -> None:
    """Those of the federation, of one node more, and of a node that knows another authority."""
    place = deployment.place
    for where, nodes in (("certs", NODES + 1), ("others", 1)):
        command = deployment.fedpn("certs", str(place / where), "--nodes", str(nodes))
        subprocess.run(command, check=True, capture_output=True)
    (place / "certs/superlink/nodes" / f"node-{NODES}.pub").unlink()
    shutil.copytree(place / "certs/node-0", place / "certs/alien")
    shutil.copy(place / "others/ca.crt", place / "certs/alien/ca.crt")


def check_the_killed_node_found_its_state(place: Path, seen: dict[str, Any]) -> None:
    assert seen["killed"] == ([], False)  # all of it was dead, its own model not yet made
    assert seen["status"] == 0, seen["words"]
    assert "personal stage 3/3" in seen["words"]
    assert "has no model of its own" not in seen["words"]
    assert main(["report", str(place / "run")]) == 0


def check_faults_and_masks(place: Path, seen: dict[str, Any]) -> None:
    for run in ("secure", "faults"):
        status, words = seen[run]
        assert status == 0, words
        found = read_json(place / run / "metrics.json")
        assert len(found["per_client"]) == NODES
    rounds = (place / "faults" / "history.jsonl").read_text().splitlines()
    assert len(rounds) == MANY
    assert any(line["sent"] > 0 and line["received"] > 0 for line in map(json.loads, rounds))
    status = read_json(place / "faults" / "status.json")
    assert status["ended"] == "finished" and len(status["nodes"]) == NODES


def check_strangers_were_refused(seen: dict[str, Any]) -> None:
    status, words = seen["unregistered"]
    assert status == 2
    assert "does not let this node in" in words
    status, words = seen["alien"]
    assert status == 2
    assert "is not to be trusted" in words


def check_no_process_is_left(seen: dict[str, Any]) -> None:
    assert seen["ended"] == dict.fromkeys(("superlink", *(f"node-{i}" for i in range(NODES))), 0)
    assert not any(seen["left"].values())


def check_the_shared_model(run: Path, simulated: Path) -> None:
    ours, about = read_tensors(run / "state.safetensors")
    theirs, _ = read_tensors(simulated / "state.safetensors")
    assert about["round"] == "3"
    shared = [name for name in theirs if name.startswith("model/")]
    assert shared
    for name in shared:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-4)


def check_the_decisions(place: Path, simulated: Path) -> None:
    """On all test rows of all clients, known and foreign: at most one is decided otherwise."""
    dataset, federation = deal(resolve([SETTINGS]))
    rows = [row for part in federation.test for row in part]
    otherwise = 0
    for client in range(NODES):
        first = place / f"state-node-{client}" / "models" / "0001"  # later runs made others
        node = fedpn.load(first)(dataset.x[rows])
        theirs = fedpn.load(simulated, client=client)(dataset.x[rows])
        pairs = zip(node, theirs, strict=True)
        otherwise += sum((a.label, a.outcome) != (b.label, b.outcome) for a, b in pairs)
    assert otherwise <= 1
    ours, expected = (read_json(out / "metrics.json") for out in (place / "run", simulated))
    assert ours["accuracy"]["switch"] == pytest.approx(expected["accuracy"]["switch"], abs=2e-3)
