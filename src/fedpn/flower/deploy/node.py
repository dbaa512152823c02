"""A node in the foreground: a SuperNode and its worker, each started anew where that helps."""

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from fedpn.core.errors import UserError
from fedpn.flower.deploy.environment import environment
from fedpn.flower.deploy.foreground import Foreground
from fedpn.flower.deploy.health import NoAnswer, check, is_taken
from fedpn.flower.deploy.home import Connection
from fedpn.flower.deploy.processes import Child, Failure, free_port
from fedpn.flower.deploy.programs import NodeFiles, make_secret, supernode, worker
from fedpn.flower.status import LINK, write_status

# A SuperLink takes a node that was killed for alive for about a minute.
PATIENCE = 90.0
PAUSE = 5.0
WORKER = 1.0  # seconds before a worker is started anew
# What a SuperNode says.
JOINED = "SuperNode ID:"
SHUT = "[code: 2004]"
FAILED = "Failed to initialize the connection"
TAKEN = "address already in use"
# It drops a message of a run that was stopped, but not the task that it made of it. The answer
# comes later and is sent in the place of the next one, which waits for the one after: from then on
# every answer is one message late, for ever.
DROPPED = "Ignoring message "

Say = Callable[[str], None]


def serve(
    connection: Connection,
    files: NodeFiles | None,
    port: int | None,
    facts: Mapping[str, str | int],
    state: Path,
    say: Say,
    patience: float = PATIENCE,
) -> None:
    """Runs a SuperNode until it is asked to end; one that fails or falls behind is started anew."""
    if port is not None and is_taken("127.0.0.1", port):
        raise UserError(f"--port {port} is taken; choose another, or leave it out")
    facts = {**facts, "state-dir": str(state.resolve())}

    def make() -> Commands:
        chosen = port or free_port()
        node = supernode(connection.address, connection.here, chosen, files, facts)
        return Commands(node, worker(chosen, state))

    commands = make()  # before anybody is talked to: it refuses another machine without TLS
    passing = {SHUT, FAILED} if port else {SHUT, FAILED, TAKEN}  # may be over the next time
    phrases = (JOINED, DROPPED, SHUT, FAILED, TAKEN)
    with _kept(state), Foreground(phrases, quiet=True) as foreground:
        link = Link(state, connection.address)
        make_secret(state)
        _wait_for(connection, foreground, link, say)
        until, known = time.monotonic() + patience, False
        while not foreground.asked:
            status = _live(commands, state, foreground, link, say)
            if foreground.asked:
                break
            heard, now = foreground.heard, time.monotonic()
            if JOINED in heard:
                until, known = now + patience, True
            elif now + PAUSE > until or not (known or passing & heard):
                link.tell("refused", _reason(heard, status))
                raise _end(heard, status, connection.address)
            link.tell("waiting", _reason(heard, status))
            if DROPPED in heard:
                say(f"{_reason(heard, status)}; starting it anew")
            else:
                say(f"{_reason(heard, status)}; trying again in {PAUSE:.0f} s")
                foreground.pause(PAUSE)
            commands = make()
        link.tell("ended")


class Commands(NamedTuple):
    """What a node is made of."""

    node: Sequence[str]
    worker: Sequence[str]


class Link:
    """Tells those who watch how the node stands with its SuperLink."""

    def __init__(self, state: Path, address: str) -> None:
        self.path, self.address = state / LINK, address
        self.said = ("", "")

    def tell(self, state: str, why: str = "") -> None:
        if (state, why) != self.said:
            facts = {"superlink": self.address, "since": time.time(), "why": why}
            write_status(self.path, {"state": state, **facts})
        self.said = (state, why)


def _live(
    commands: Commands, state: Path, foreground: Foreground, link: Link, say: Say
) -> int | None:
    """One life of a SuperNode, with as many of its worker as that takes; how it ended."""
    variables = environment(state / "flower")
    with (
        Child("SuperNode", commands.node, variables) as child,
        Keeper(commands.worker, variables, foreground, say) as keeper,
    ):
        shown = foreground.show(child)

        def watch() -> None:
            if JOINED in foreground.heard:
                link.tell("connected")
            keeper.watch()

        foreground.stay(child, DROPPED, watch)
        status = child.process.poll()
    shown.join(1.0)
    return status


class Keeper:
    """A node's worker: one that ends is started anew, and said to be."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        foreground: Foreground,
        say: Say,
    ) -> None:
        self.command, self.variables, self.say = command, variables, say
        self.foreground = foreground
        self.next = 0.0  # when one may be started
        self.child: Child | None = None

    def __enter__(self) -> Self:
        self.watch()
        return self

    def __exit__(self, *error: object) -> None:
        if self.child is not None:
            self.child.stop()

    def watch(self) -> None:
        """Starts a worker where there is none."""
        now = time.monotonic()
        if self.child is not None and not self.child.alive:
            status = self.child.process.returncode
            self.child.stop()
            self.child, self.next = None, now + WORKER
            if status:
                self.say(f"the worker ended with status {status}; starting it anew")
        if self.child is None and now >= self.next:
            self.child = Child("worker", self.command, self.variables)
            self.foreground.listen(self.child)


def _end(heard: set[str], status: int | None, address: str) -> Exception:
    """Why a SuperNode is not started anew."""
    if SHUT in heard:
        return UserError(
            f"the SuperLink at {address} does not let this node in: register its public key there "
            "(fedpn flower register), or end its other session; barred keys are so for good"
        )
    return Failure(f"the SuperNode ended with status {status}")


def _reason(heard: set[str], status: int | None) -> str:
    """Why a SuperNode is to be started anew."""
    if DROPPED in heard:
        return "the SuperNode dropped a message of a run that was stopped"
    if SHUT in heard and JOINED not in heard:
        return (
            "the SuperLink does not let this node in: its key is not registered, or its last "
            "session is not over yet"
        )
    if TAKEN in heard and JOINED not in heard:
        return "another program took the SuperNode's port"
    return f"the SuperNode ended with status {status}"


def _wait_for(connection: Connection, foreground: Foreground, link: Link, say: Say) -> None:
    """Waits until the SuperLink answers; one that is not to be trusted is a mistake at once."""
    told = False
    while not foreground.asked:
        try:
            check(connection.address, connection.ca, connection.plain)
            return
        except NoAnswer as error:
            link.tell("waiting", str(error))
            if not told:
                say(f"{error}; waiting for it")
            told = True
            foreground.pause(2.0)


@contextmanager
def _kept(state: Path) -> Iterator[None]:
    """Keeps a node's directory to one node, and to its owner's eyes."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o700)
        with (state / "node.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise UserError(f"--state {state} is in use by another node") from None
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"--state {state} cannot be used: {error.strerror}") from None
