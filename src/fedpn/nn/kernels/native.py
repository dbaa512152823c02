"""The library that is in use: the one that was built when the package was, or installed.

`recipe.py` says how it is built. Where there is none, `FEDPN_KERNELS=build` has `compiled.py` build
one on first use; else PyTorch's own operations serve, and `status()` says so.
"""

import ctypes
import functools
import os

import torch
from torch import Tensor

from fedpn.nn.kernels import compiled
from fedpn.nn.kernels.compiled import Build
from fedpn.nn.kernels.recipe import HERE, SYMBOLS, prebuilt


def native() -> ctypes.CDLL | None:
    """Returns the library, built where need be, or None where the eager forms have to do."""
    return None if _switched_off() else build().library


def library() -> ctypes.CDLL:
    """Returns the library where it is known to be there."""
    found = build().library
    assert found is not None
    return found


def status() -> str:
    """Tells which form of the kernels is in use, and why.

    >>> status().split(":")[0] in ("native", "eager")
    True
    """
    if _switched_off():
        return "eager: FEDPN_KERNELS=off"
    library, story = build()
    return f"{'native' if library else 'eager'}: {story}"


def threads() -> int:
    """As many as PyTorch would use."""
    return torch.get_num_threads()


def shares(clients: int, rows: int) -> int:
    """Tells in how many parts each client's rows are dealt so that all threads are busy.

    It depends on the numbers of clients, rows and threads alone, and so do the results' bits.
    """
    return min(rows, 1 if clients % threads() == 0 else threads())


def integers(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """Values as C's `int64_t[]`, or as a struct of such."""
    return (ctypes.c_int64 * len(values))(*values)


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def check(code: int) -> None:
    """Turns what a kernel returned into an error."""
    if code == 1:
        raise MemoryError(
            "no memory for the buffers of a native kernel; FEDPN_KERNELS=off spares them"
        )
    if code == 2:
        raise IndexError("a label is outside of the density's classes")


@functools.cache
def build() -> Build:
    """Load the library of this CPU's vector unit from the package, or, where asked, build one."""
    unit = torch.backends.cpu.get_cpu_capability()
    brought = _brought(unit)
    if brought.library:
        return brought
    if os.environ.get("FEDPN_KERNELS", "").lower() != "build":
        return Build(None, f"{brought.story}; FEDPN_KERNELS=build compiles one, once")
    built = compiled.build(unit)
    return built if built.library else Build(None, f"{brought.story}, and {built.story}")


def _brought(unit: str) -> Build:
    """The library that came with the package; its OpenMP is the one that PyTorch has loaded."""
    path = HERE / prebuilt(unit)
    if not path.exists():
        return Build(None, "the package brought no library for this machine")
    try:
        library = ctypes.CDLL(str(path))
        for name in SYMBOLS:
            library[name]
    except (OSError, AttributeError) as error:
        return Build(None, f"{path} cannot be loaded ({error})")
    return Build(library, f"C that came with the package, {path}")


def _switched_off() -> bool:
    return os.environ.get("FEDPN_KERNELS", "").lower() in ("off", "0", "no", "false", "eager")
