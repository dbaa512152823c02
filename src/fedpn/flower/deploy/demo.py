"""A whole federation on this machine: certificates, a SuperLink and its nodes, taken down again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

from fedpn.flower.deploy import certs, control
from fedpn.flower.deploy.environment import environment
from fedpn.flower.deploy.foreground import SIGNALS
from fedpn.flower.deploy.health import answers
from fedpn.flower.deploy.home import Connection, write_home
from fedpn.flower.deploy.processes import Child, free_port, kill, new_mark
from fedpn.flower.deploy.programs import LinkFiles, link_files, node_files, superlink, supernode

SECONDS = 60.0  # to start
# Several nodes share this machine: one thread each, and no waiting where nobody is disturbed.
SHARING = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


@contextmanager
def federation(place: Path, nodes: int) -> Iterator[Path]:
    """Starts a SuperLink and nodes, each with its part of a named set; yields Flower's home.

    Whatever happens inside, no process is left behind.
    """
    certs.make(place / "certs", nodes)
    with _Household(place) as household:
        files = link_files(place / "certs")
        connection, home = household.start_link(files)
        household.start_nodes(connection, home, {key.stem: key for key in files.nodes})
        yield home


class _Household:
    """Programs that are started one after the other, and taken down together."""

    def __init__(self, place: Path) -> None:
        self.place, self.mark = place, new_mark()
        self.children: list[Child] = []

    def start_link(self, files: LinkFiles) -> tuple[Connection, Path]:
        port = free_port()
        connection = Connection(f"127.0.0.1:{port}", files.ca, plain=False)
        home = write_home(self.place / "flower", connection)
        command = superlink("127.0.0.1", port, files, self.place / "superlink.db")
        link = self._start("superlink", command, home)
        link.wait_until(
            lambda: answers(connection.address, connection.ca, connection.plain), SECONDS
        )
        return connection, home

    def start_nodes(self, connection: Connection, home: Path, keys: dict[str, Path]) -> None:
        started = []
        for i in range(len(keys)):
            control.register(home, keys[f"node-{i}"])
            started.append(self._start_node(connection, i, len(keys)))
        for node, port in started:
            node.wait_until(partial(answers, f"127.0.0.1:{port}", None, plain=True), SECONDS)

    def _start_node(self, connection: Connection, i: int, nodes: int) -> tuple[Child, int]:
        name = f"node-{i}"
        state = self.place / name
        state.mkdir(mode=0o700)
        facts: dict[str, str | int] = {"name": name, "partition-id": i, "num-partitions": nodes}
        facts["state-dir"] = str(state)
        files, port = node_files(self.place / "certs" / name), free_port()
        command = supernode(connection.address, connection.here, port, files, facts)
        return self._start(name, command, state / "flower"), port

    def _start(self, name: str, command: list[str], home: Path) -> Child:
        log = self.place / f"{name}.log"
        child = Child(name, command, environment(home) | SHARING, log, self.mark)
        self.children.append(child)
        return child

    def __enter__(self) -> Self:
        # A request to end is heard like Ctrl-C, so that all is taken down.
        self.before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
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
