"""Keeps freed memory at hand: rounds free and take the same large blocks again and again."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory(limit: int = 1 << 30) -> bool:
    """Asks glibc not to give blocks below the limit back to the system; tells whether it will."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(option, limit) == 1 for option in (TRIM_THRESHOLD, MMAP_THRESHOLD))
