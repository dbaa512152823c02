"""Modules of the user's own that come with a run: loaded only where the node's policy says so."""

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.flower.app.policy import read_policy

_NAME = re.compile(r"[A-Za-z_]\w{0,63}\.py")
LARGEST = 1 << 20  # bytes of all modules of a run


class Code:
    """The modules of one run: another run's need another process."""

    def __init__(self, state: Path) -> None:
        self.state, self.loaded = state, ""

    def load(self, fab: bytes) -> bool:
        """Puts a run's modules where they are found; False where others are loaded already."""
        if not read_policy(self.state).code:
            return True  # what a run carries is not even looked at
        modules = read_modules(fab)
        mark = hashlib.sha256(fab).hexdigest() if modules else ""
        if mark == self.loaded:
            return True
        if self.loaded:
            return False
        if mark:
            folder = self.state / "code" / mark[:16]
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name, text in modules.items():
                (folder / name).write_bytes(text)
            sys.path.insert(0, str(folder))
            self.loaded = mark
        return True


def read_modules(fab: bytes) -> dict[str, bytes]:
    """The modules at the top of an app, by name."""
    try:
        with zipfile.ZipFile(io.BytesIO(fab)) as file:
            found = [info for info in file.infolist() if _NAME.fullmatch(info.filename)]
            if sum(info.file_size for info in found) > LARGEST:
                raise UserError(f"the modules of this run have more than {LARGEST} bytes")
            return {info.filename: file.read(info) for info in found}
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise UserError(f"the app of this run cannot be read: {error}") from None
