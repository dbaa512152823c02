"""Places and files without PyTorch: what runs for weeks beside a node shall be small."""

import os
from pathlib import Path

from fedpn.core.errors import UserError

WORKER_SECRET = "worker.secret"  # in a node's state: by it a SuperNode knows its worker


def fresh(place: Path) -> Path:
    """Makes a directory, or refuses one that holds something already."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        full = any(place.iterdir())
    except OSError as error:
        raise UserError(f"{place} cannot be made: {error.strerror}") from None
    if full:
        raise UserError(f"{place} is not empty; choose another directory")
    return place


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Writes a file whole; a secret is never readable to others, not even for a moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # of one that was killed; in a container all have one number
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
