"""Builds the C sources on first use, keeps the library in the user's cache, and loads it.

What is loaded is code, so the folder and the library must belong to this user and be closed to
the writing of others, and the library must match its checksum, which is written once a child
process has loaded it. Where the cache cannot be used, one is built for this process and its
children.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_dir

from fedpn.nn.kernels.recipe import FLAGS, HERE, SOURCES, SYMBOLS, sources, targets

COMPILERS = ("cc", "gcc", "clang")
PATIENCE = 120  # seconds for a compiler
# A broken library may end the process that loads it: a child tries first.
TRIAL = """import ctypes, sys
try:
    [ctypes.CDLL(sys.argv[1])[name] for name in sys.argv[2:]]
except Exception as error:
    sys.exit(str(error))"""
HANDED = "FEDPN_KERNELS_BUILT"  # the library that a process without a cache built, for its children
PREFIX = "fedpn-kernels-"  # of folders in tmp; then the process that made it
ABSENT = "is not there"


class Compiler(NamedTuple):
    """A compiler, and the flags to try in turn."""

    path: str
    targets: tuple[tuple[str, ...], ...]


class Build(NamedTuple):
    """The library, or None, and in words how it came about."""

    library: ctypes.CDLL | None
    story: str


def build(unit: str) -> Build:
    """Finds the library of this source, compiler and CPU in the cache, or compiles it."""
    compiler = _compiler()
    if compiler is None:
        return Build(None, "no C compiler (looked for $CC, cc, gcc, clang)")
    try:
        version = _run([compiler, "--version"]).partition("\n")[0]
        suited = Compiler(compiler, targets(unit))
        path, remark = _find(_name(version, suited.targets), suited)
        library = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        return Build(None, f"{compiler} built no library: {_reason(error)}")
    return Build(library, f"C built by {version}, {path}{remark}")


def _compiler() -> str | None:
    named = os.environ.get("CC", "").split()
    return next(filter(None, map(shutil.which, [*named[:1], *COMPILERS])), None)


def _name(version: str, flags: tuple[tuple[str, ...], ...]) -> str:
    """A name for this source, compiler and CPU."""
    key = hashlib.sha256("\0".join([version, _cpu(), *FLAGS, *map(str, flags)]).encode())
    for name in SOURCES:
        key.update(HERE.joinpath(name).read_bytes())
    return f"kernels-{key.hexdigest()[:20]}.so"


def _cpu() -> str:
    """What -mcpu=native depends on: a home directory may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    marks = ("model name", "flags", "Features", "CPU part")
    known = dict.fromkeys(line for line in lines if line.startswith(marks))
    return "\n".join([platform.machine(), platform.processor(), *known])


def _find(name: str, compiler: Compiler) -> tuple[Path, str]:
    """The library in the cache, or a parent's, or a new one; and what there is to say of it."""
    place = Path(user_cache_dir("fedpn")) / "kernels"
    path = place / name
    refusal = _claim(place)
    fault = refusal or _fault(path)
    if not fault:
        return path, ""
    handed = Path(os.environ.get(HANDED, ""))
    if handed.name == name and not (_distrust(handed.parent, stat.S_IFDIR) or _fault(handed)):
        why = refusal or "holds none that is sound"
        return handed, f", which a parent process built, as {place} {why}"
    if not refusal:
        try:
            _compile(compiler, path)
            return path, "" if fault == ABSENT else f", built anew, as the one there {fault}"
        except OSError as error:
            refusal = f"takes no library ({_reason(error)})"
    path = _private(name, compiler)
    return path, f", for this process and its children alone, as {place} {refusal}"


def _claim(place: Path) -> str:
    """Makes the folder this user's own, or tells why it cannot be."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot be made ({_reason(error)})"
    if fault := _distrust(place.resolve(), stat.S_IFDIR):
        return f"{fault}; remove it and a new one is made"
    with contextlib.suppress(OSError):  # nobody else writes there in any case
        if stat.S_IMODE(place.stat().st_mode) != 0o700:
            place.chmod(0o700)
    return ""


def _distrust(path: Path, kind: int = stat.S_IFREG) -> str:
    """Tells why what others can change is not to be trusted; nothing where they cannot."""
    try:
        info = path.lstat()
    except OSError as error:
        return ABSENT if isinstance(error, FileNotFoundError) else f"is hidden ({_reason(error)})"
    if stat.S_IFMT(info.st_mode) != kind:
        return "is no plain file or folder"
    if os.name == "posix" and info.st_uid != os.geteuid():
        return f"belongs to the user {info.st_uid}"
    mode = stat.S_IMODE(info.st_mode)
    shared = os.name == "posix" and mode & 0o022
    return f"can be written by others (mode {mode:04o})" if shared else ""


def _fault(path: Path) -> str:
    """Tells why a library cannot be loaded without fear; nothing where it can."""
    sums = path.with_suffix(".sha256")
    if fault := _distrust(path):
        return fault
    if fault := _distrust(sums):
        return f"has a checksum that {fault}"
    try:
        known = sums.read_bytes().split()
        return "" if _checksum(path).encode() in known else "differs from its checksum"
    except OSError as error:
        return f"cannot be read ({_reason(error)})"


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _private(name: str, compiler: Compiler) -> Path:
    """Builds in a folder that goes with this process, and tells its children of it."""
    _sweep()
    place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    # Unlike atexit's, these run in forked workers too, and only in the process that made them.
    Finalize(None, shutil.rmtree, (place,), {"ignore_errors": True}, exitpriority=-1)
    _compile(compiler, place / name)
    os.environ[HANDED] = str(place / name)
    return place / name


def _sweep() -> None:
    """Takes away what killed processes of this user left."""
    for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}[0-9]*-*"):
        process = place.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError, OverflowError, ValueError):
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                if not _distrust(place, stat.S_IFDIR):
                    shutil.rmtree(place, ignore_errors=True)


def _compile(compiler: Compiler, path: Path) -> None:
    """Compiles under a name of its own and renames: two may build at the same time."""
    error: Exception | None = None
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as own:
        for target in compiler.targets:
            made = Path(own) / path.name
            flags = [*FLAGS, "-shared", *target, *sources(), "-o", str(made), "-lm"]
            try:
                _run([compiler.path, *flags], TMPDIR=own)
                _try(made)
            except (OSError, subprocess.SubprocessError) as failure:
                error = error or failure
                continue
            made.chmod(0o700)
            _remember(made, path.with_suffix(".sha256"))
            made.replace(path)
            return
    assert error is not None
    raise error


def _try(path: Path) -> None:
    """Loads the library and looks its functions up where nothing can be harmed."""
    try:
        _run([sys.executable, "-I", "-c", TRIAL, str(path), *SYMBOLS])
    except subprocess.SubprocessError as error:
        raise OSError(f"the library cannot be loaded: {_reason(error)}") from error


def _remember(library: Path, sums: Path) -> None:
    """Adds the checksum before the library appears; of two builders' either may stay."""
    if _distrust(sums):
        sums.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with os.fdopen(os.open(sums, flags, 0o600), "a") as file:
        file.write(f"\n{_checksum(library)}\n")


def _run(command: list[str], **environment: str) -> str:
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, check=True, timeout=PATIENCE
    )
    return result.stdout.decode(errors="replace")


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        text = (
            error.stderr.decode(errors="replace")
            or f"{Path(error.cmd[0]).name} ended with {error.returncode}"
        )
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())[:300]
