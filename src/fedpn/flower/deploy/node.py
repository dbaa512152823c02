"""A SuperNode in the foreground, which is started anew where that helps."""

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.deploy.environment import environment
from fedpn.flower.deploy.foreground import Foreground
from fedpn.flower.deploy.health import NoAnswer, check, is_taken
from fedpn.flower.deploy.home import Connection
from fedpn.flower.deploy.processes import Child, Failure, free_port
from fedpn.flower.deploy.programs import NodeFiles, supernode

# A SuperLink takes a node that was killed for alive for about a minute.
PATIENCE = 90.0
PAUSE = 5.0
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

    def make() -> list[str]:
        return supernode(connection.address, connection.here, port or free_port(), files, facts)

    command = make()  # before anybody is talked to: it refuses another machine without TLS
    passing = {SHUT, FAILED} if port else {SHUT, FAILED, TAKEN}  # may be over the next time
    with _kept(state), Foreground((JOINED, DROPPED, SHUT, FAILED, TAKEN)) as foreground:
        _wait_for(connection, foreground, say)
        until, known = time.monotonic() + patience, False
        while not foreground.asked:
            status = _live(command, state, foreground)
            if foreground.asked:
                return
            heard, now = foreground.heard, time.monotonic()
            if JOINED in heard:
                until, known = now + patience, True
            elif now + PAUSE > until or not (known or passing & heard):
                raise _end(heard, status, connection.address)
            if DROPPED in heard:
                say(f"{_reason(heard, status)}; starting it anew")
            else:
                say(f"{_reason(heard, status)}; trying again in {PAUSE:.0f} s")
                foreground.pause(PAUSE)
            command = make()


def _live(command: Sequence[str], state: Path, foreground: Foreground) -> int | None:
    """One life of a SuperNode; how it ended, where it did by itself."""
    with Child("SuperNode", command, environment(state / "flower")) as child:
        shown = foreground.show(child)
        foreground.stay(child, until=DROPPED)
        status = child.process.poll()
    shown.join(1.0)
    return status


def _end(heard: set[str], status: int | None, address: str) -> Exception:
    """Why a SuperNode is not started anew."""
    if SHUT in heard:
        return UserError(
            f"the SuperLink at {address} does not let this node in: register its public key there "
            "(fedpn flower register), or end its other session"
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


def _wait_for(connection: Connection, foreground: Foreground, say: Say) -> None:
    """Waits until the SuperLink answers; one that is not to be trusted is a mistake at once."""
    told = False
    while not foreground.asked:
        try:
            check(connection.address, connection.ca, connection.plain)
            return
        except NoAnswer as error:
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
