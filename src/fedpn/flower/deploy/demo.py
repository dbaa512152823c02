"""A whole federation on this machine: certificates, a SuperLink and its nodes, taken down again."""

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from fedpn.flower.deploy import certs, control
from fedpn.flower.deploy.environment import environment
from fedpn.flower.deploy.foreground import SIGNALS
from fedpn.flower.deploy.health import answers, split
from fedpn.flower.deploy.home import Connection, write_home
from fedpn.flower.deploy.processes import Child, free_port, kill, new_mark
from fedpn.flower.deploy.programs import (
    link_files,
    make_secret,
    node_files,
    superlink,
    supernode,
    worker,
)

SECONDS = 180.0  # to start, on a busy machine
# Several nodes share this machine: one thread each, and no waiting where nobody is disturbed.
SHARING = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}


class _Node(NamedTuple):
    """A node of a federation that is about to start."""

    name: str
    state: Path
    port: int
    facts: dict[str, str | int]


class Federation:
    """A SuperLink and nodes, each with its part of a named set, taken down together.

    Whatever happens while it is up, no process is left behind.
    """

    def __init__(self, place: Path, nodes: int) -> None:
        certs.make(place / "certs", nodes)
        self.place, self.mark = place, new_mark()
        self.files = link_files(place / "certs")
        self.connection = Connection(f"127.0.0.1:{free_port()}", self.files.ca, plain=False)
        self.home = write_home(place / "flower", self.connection)
        self.nodes = [self._node(i, nodes) for i in range(nodes)]
        self.children: list[Child] = []

    def _node(self, i: int, nodes: int) -> _Node:
        state = self.place / f"node-{i}"
        state.mkdir(mode=0o700)
        make_secret(state)
        facts: dict[str, str | int] = {"name": state.name, "state-dir": str(state)}
        facts |= {"partition-id": i, "num-partitions": nodes}
        return _Node(state.name, state, free_port(), facts)

    def _begin(self) -> None:
        """Starts the SuperLink, for which all others wait."""
        host, port = split(self.connection.address)
        command = superlink(host, port, self.files, self.place / "superlink.db")
        self.link = self._start("superlink", command, self.home)

    def open(self) -> Path:
        """Lets the nodes in, and waits until they are up; returns Flower's home."""
        self.link.wait_until(partial(answers, *self.connection), SECONDS)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(partial(control.register, self.home), self.files.nodes))
        started = []
        for node in self.nodes:
            files = node_files(self.place / "certs" / node.name)
            command = supernode(self.connection.address, True, node.port, files, node.facts)
            started.append(self._start(node.name, command, node.state / "flower"))
        for node in self.nodes:  # which take long to start, and are needed last
            command = worker(node.port, node.state)
            self._start(f"{node.name}-worker", command, node.state / "flower")
        for node, child in zip(self.nodes, started, strict=True):
            address = f"127.0.0.1:{node.port}"
            child.wait_until(partial(answers, address, None, plain=True), SECONDS)
        return self.home

    def _start(self, name: str, command: list[str], home: Path) -> Child:
        log = self.place / f"{name}.log"
        child = Child(name, command, environment(home) | SHARING, log, self.mark)
        self.children.append(child)
        return child

    def __enter__(self) -> Self:
        # A request to end is heard like Ctrl-C, so that all is taken down.
        self.before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # nobody hurries this
        for child in reversed(self.children):
            child.ask_to_end()
        for child in self.children:
            child.stop()
        kill(self.mark)
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
