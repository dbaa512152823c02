"""What is not opened at all: pipes and devices, and what would not fit."""

import stat
from collections.abc import Collection
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.core.plain import plain

MOST = 8 << 30  # bytes that rows may take, in a file or in memory
PIXELS = 64_000_000  # of a picture
LONGEST = 200  # characters of a class's or a client's name
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def plain_file(path: Path, most: int = MOST) -> int:
    """Refuses, without opening it, what is no file or too large a one; returns its bytes."""
    try:
        info = path.stat()
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be found ({reason(error)}); check the path") from error
    if not stat.S_ISREG(info.st_mode):
        kind = KINDS.get(stat.S_IFMT(info.st_mode), "something else")
        raise UserError(f"{path} is {kind} where a file is needed; take it away or name a file")
    if info.st_size == 0:
        raise UserError(f"{path} is empty; save or fetch it again")
    if info.st_size > most:
        raise UserError(
            f"{path} has {size(info.st_size)} and at most {size(most)} are read; take fewer rows"
        )
    return info.st_size


def fits(count: int, what: str, way: str) -> None:
    """Refuses rows that would take more memory than any set has use for."""
    if count > MOST:
        raise UserError(f"{what} would take {size(count)} and at most {size(MOST)} are read; {way}")


def few_pixels(what: str, width: int, height: int) -> None:
    """Refuses a picture that would take too much once it is decoded."""
    if width * height > PIXELS:
        raise UserError(
            f"{what} has {width}×{height} pixels and at most {PIXELS // 10**6} million are read; "
            "make it smaller"
        )


def size(count: int) -> str:
    """Bytes, in words.

    >>> size(300), size(3 << 20), size(6 << 30)
    ('300 bytes', '3.0 MB', '6.0 GB')
    """
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def short(text: str, most: int = 40) -> str:
    """The beginning of a text that may be long.

    >>> short("brief"), short("long" * 20)
    ('brief', 'longlonglonglonglonglonglonglonglonglong…')
    """
    return text if len(text) <= most else f"{text[:most]}…"


def some(names: Collection[str]) -> str:
    """Names, the first and the last of them where there are many."""
    listed = [plain(short(name)) for name in names]
    return ", ".join(listed if len(listed) <= 12 else [*listed[:6], "…", *listed[-5:]])


def reason(error: BaseException) -> str:
    """What a library says of a failure, in a line."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return short(" ".join(told.split()) or type(error).__name__, 200)
