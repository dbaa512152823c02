"""A SuperLink in the foreground, which lets in the nodes whose keys it was given.

One that ends by itself after it came up is started anew.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.deploy import control
from fedpn.flower.deploy.certs import EVERYWHERE, check_server
from fedpn.flower.deploy.environment import environment
from fedpn.flower.deploy.foreground import Foreground
from fedpn.flower.deploy.health import answers, is_here, is_taken
from fedpn.flower.deploy.home import Connection, write_home
from fedpn.flower.deploy.processes import Child
from fedpn.flower.deploy.programs import LinkFiles, superlink

SECONDS = 180.0  # to start, on a busy machine
PAUSE = 5.0  # before it is started anew
OPEN = (
    "whoever reaches {address} can submit a run, and a run is code that this machine executes: let "
    "others reach only /v1/fleet/ and /health, through a proxy (docs/flower.md)"
)

Say = Callable[[str], None]


def serve(host: str, port: int, files: LinkFiles | None, database: Path, say: Say) -> None:
    """Runs a SuperLink until it is asked to end."""
    command = superlink(host, port, files, database)
    if files is not None:
        check_server(files.certificate, host)
    if is_taken(host, port):
        raise UserError(f"--port {port} is taken on {host}; choose another")
    if not database.resolve().parent.is_dir():
        raise UserError(f"--database {database}: there is no directory {database.parent}")
    reached = f"{'127.0.0.1' if host in EVERYWHERE else host}:{port}"
    connection = Connection(reached, files and files.ca, plain=files is None)
    home = write_home(database.with_suffix(".home"), connection)
    if not is_here(host):
        say(OPEN.format(address=f"{host}:{port}"))
    with Foreground() as foreground:
        while not foreground.asked:
            status = _live(command, connection, home, files, foreground, say)
            if not foreground.asked:
                say(f"the SuperLink ended with status {status}; starting it anew")
                foreground.pause(PAUSE)


def _live(
    command: Sequence[str],
    connection: Connection,
    home: Path,
    files: LinkFiles | None,
    foreground: Foreground,
    say: Say,
) -> int | None:
    """One life of a SuperLink; how it ended, where it did by itself. One must come up."""
    with Child("SuperLink", command, environment(home)) as child:
        foreground.show(child)

        def ready() -> bool:
            there = answers(connection.address, connection.ca, connection.plain)
            return foreground.asked or there

        child.wait_until(ready, SECONDS)
        for key in files.nodes if files else ():
            if not foreground.asked and control.register(home, key):
                say(f"{key.stem} may join")
        if not foreground.asked:
            say(f"the SuperLink is ready at {connection.address}; Ctrl-C ends it")
        foreground.stay(child)
        return child.process.poll()
