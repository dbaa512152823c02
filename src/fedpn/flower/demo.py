"""A whole federation on this machine: certificates, a SuperLink and its nodes, taken down again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedpn.flower import certs, control
from fedpn.flower.environment import environment
from fedpn.flower.health import answers
from fedpn.flower.home import Connection, furnish
from fedpn.flower.processes import Child, free_port, stop_all
from fedpn.flower.programs import link_files, node_files, superlink, supernode

SECONDS = 60.0  # to start
# Several nodes share this machine: one thread each, and no waiting where nobody is disturbed.
SHARING = {"OMP_NUM_THREADS": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


@contextmanager
def federation(place: Path, nodes: int) -> Iterator[Path]:
    """Starts a SuperLink and nodes, each with its part of a named set; yields Flower's home.

    Whatever happens inside, no process is left behind.
    """
    certs.make(place / "certs", nodes)
    files = link_files(place / "certs")
    port = free_port()
    connection = Connection(f"127.0.0.1:{port}", files.ca, plain=False)
    home = furnish(place / "flower", connection)
    children: list[Child] = []
    with _signals_as_interrupts():
        try:
            command = superlink("127.0.0.1", port, files, place / "superlink.db")
            children.append(_start("superlink", command, place, home))
            children[0].wait_until(lambda: answers(*connection), SECONDS)
            for key in files.nodes:
                control.register(home, key)
            children += [_node(i, nodes, place, connection) for i in range(nodes)]
            yield home
        finally:
            stop_all(children)


def _node(i: int, nodes: int, place: Path, connection: Connection) -> Child:
    name = f"node-{i}"
    state = place / name
    state.mkdir(mode=0o700)
    facts: dict[str, str | int] = {"name": name, "partition-id": i, "num-partitions": nodes}
    facts["state-dir"] = str(state)
    files, port = node_files(place / "certs" / name), free_port()
    command = supernode(connection.address, connection.here, port, files, facts)
    child = _start(name, command, place, state / "flower")
    child.wait_until(lambda: answers(f"127.0.0.1:{port}", None, plain=True), SECONDS)
    return child


def _start(name: str, command: list[str], place: Path, home: Path) -> Child:
    return Child(name, command, environment(home) | SHARING, place / f"{name}.log")


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Lets a request to end be heard like Ctrl-C, so that all is taken down."""

    def hear(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, hear) for number in kinds}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
