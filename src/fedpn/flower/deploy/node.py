"""A SuperNode in the foreground, which keeps trying where a SuperLink may yet let it in."""

import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
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
SHUT = "[code: 2004]"

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
    """Runs a SuperNode until it is asked to end."""
    if port is not None and is_taken("127.0.0.1", port):
        raise UserError(f"--port {port} is taken; choose another, or leave it out")
    port = port or free_port()
    facts = {**facts, "state-dir": str(state.resolve())}
    command = supernode(connection.address, connection.here, port, files, facts)
    with _kept(state), Foreground() as foreground:
        _wait_for(connection, foreground, say)
        until = time.monotonic() + patience
        while not foreground.asked:
            began = time.monotonic()
            with Child("SuperNode", command, environment(state / "flower")) as child:
                shown = foreground.show(child)
                foreground.stay(child)
            shown.join(1.0)
            if foreground.asked:
                return
            words = "".join(foreground.words)
            if SHUT not in words:
                raise Failure(f"the SuperNode ended with status {child.process.returncode}")
            if time.monotonic() - began > patience:  # it was let in, and is shut out anew
                until = time.monotonic() + patience
            if time.monotonic() + PAUSE > until:
                raise UserError(
                    f"the SuperLink at {connection.address} does not let this node in: register "
                    "its public key there (fedpn flower register), or end its other session"
                )
            say(
                "the SuperLink does not let this node in: its key is not registered, or its last "
                f"session is not over yet; trying again in {PAUSE:.0f} s"
            )
            foreground.pause(PAUSE)


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
