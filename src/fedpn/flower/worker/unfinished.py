"""The message in hand, on disk: should this worker die, the next one tells those who wait."""

from pathlib import Path

from fedpn.flower.place import write_whole


class Unfinished:
    """A file while a message is worked on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, token: str, message: bytes) -> None:
        write_whole(self.path, token.encode() + b"\n" + message, 0o600)

    def done(self) -> None:
        self.path.unlink(missing_ok=True)

    def read(self) -> tuple[str, bytes] | None:
        """The token and the message of one that was left, where there is one."""
        try:
            token, _, message = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        return token.decode("ascii", "replace"), message
