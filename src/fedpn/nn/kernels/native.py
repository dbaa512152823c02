"""Builds the C sources on first use, keeps the library in the user's cache, and loads it."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from platformdirs import user_cache_dir
from torch import Tensor

HERE = Path(__file__).parent
SOURCES = ("vectors.h", "conv.c", "radial.c")
# No -ffast-math: NaN must stay NaN, so that a client that diverged is seen.
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
# The first that the compiler takes; OpenMP's threads are then those that PyTorch has already.
TARGETS = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",), ())
COMPILERS = ("cc", "gcc", "clang")
PATIENCE = 120  # seconds for a compiler


class Build(NamedTuple):
    """The library, or None, and in words how it came about."""

    library: ctypes.CDLL | None
    story: str


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
    """Finds the library of this source, compiler and CPU in the cache, or compiles it, once."""
    compiler = _compiler()
    if compiler is None:
        return Build(None, "no C compiler (looked for $CC, cc, gcc, clang)")
    try:
        version = _run([compiler, "--version"]).partition("\n")[0]
        key = hashlib.sha256("\0".join([version, _cpu(), *FLAGS, *map(str, TARGETS)]).encode())
        for name in SOURCES:
            key.update(HERE.joinpath(name).read_bytes())
        path = _place() / f"kernels-{key.hexdigest()[:20]}.so"
        if not path.exists():
            _compile(compiler, path)
        library = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        return Build(None, f"{compiler} built no library: {_reason(error)}")
    return Build(library, f"C built by {version}, {path}")


def _switched_off() -> bool:
    return os.environ.get("FEDPN_KERNELS", "").lower() in ("off", "0", "no", "false", "eager")


def _compiler() -> str | None:
    named = os.environ.get("CC", "").split()
    return next(filter(None, map(shutil.which, [*named[:1], *COMPILERS])), None)


def _cpu() -> str:
    """What -march=native depends on: a home directory may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    marks = ("model name", "flags", "Features", "CPU part")
    known = dict.fromkeys(line for line in lines if line.startswith(marks))
    return "\n".join([platform.machine(), platform.processor(), *known])


def _place() -> Path:
    """The user's cache, or where that cannot be written, a directory of this process."""
    place = Path(user_cache_dir("fedpn")) / "kernels"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return place
    except OSError:
        return Path(tempfile.mkdtemp(prefix="fedpn-kernels-"))


def _compile(compiler: str, path: Path) -> None:
    """Compiles under a name of its own and renames: two may build at the same time."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so")
    os.close(handle)
    sources = [str(HERE / source) for source in SOURCES if source.endswith(".c")]
    error: Exception | None = None
    try:
        for target in TARGETS:
            try:
                _run([compiler, *FLAGS, *target, *sources, "-o", name, "-lm"])
            except subprocess.SubprocessError as failure:
                error = error or failure
                continue
            Path(name).replace(path)
            return
        assert error is not None
        raise error
    finally:
        Path(name).unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE, errors="replace"
    )
    return result.stdout


def _reason(error: Exception) -> str:
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
