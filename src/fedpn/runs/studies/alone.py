"""Of two processes that want to work in the same place, one waits for the other."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds a run directory against other processes, where the system knows locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.busy").open("w") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
