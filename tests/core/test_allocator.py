"""The allocator's settings are accepted where there is glibc."""

import platform

from fedpn.core.allocator import keep_freed_memory


def test_glibc_agrees():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
