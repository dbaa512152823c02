"""How the C sources become a library: `hatch_build.py`, which has no PyTorch, reads this file too.

There is one form for each of the vector units that PyTorch tells apart on x86-64, with exactly the
instructions it looks for. So a library that came with the package and one that the same compiler
builds here give the same bits, and none has an instruction that the CPU lacks.
"""

import hashlib
import platform
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("vectors.h", "conv.c", "radial.c")
SYMBOLS = ("fedpn_conv_forward", "fedpn_conv_backward", "fedpn_radial")
# No -ffast-math: NaN must stay NaN, so that a client that diverged is seen.
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")
# By the names of torch.backends.cpu.get_cpu_capability().
UNITS = {
    "AVX512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mavx2", "-mfma"),
    "AVX2": ("-mavx2", "-mfma"),
    "DEFAULT": (),
}


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def targets(unit: str) -> tuple[tuple[str, ...], ...]:
    """The flags to try in turn; OpenMP's threads are those that PyTorch has already.

    >>> targets("AVX2")[-1]
    ()
    """
    own = UNITS.get(unit, ()) if is_x86() else ("-mcpu=native",)
    return (*own, "-fopenmp"), own, ()


def units() -> dict[str, tuple[str, ...]]:
    """Return the vector units that a wheel for this machine has libraries for, and their flags."""
    return UNITS if is_x86() else {"DEFAULT": ()}


def prebuilt(unit: str) -> str:
    """Return the name of the library for a vector unit, which ends in a hash of its sources.

    So a library that was built from other sources is not found, rather than used.

    >>> prebuilt("DEFAULT").rpartition("-")[0]
    'kernels-default'
    """
    digest = hashlib.sha256(repr(FLAGS).encode())
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    unit = unit if unit in units() else "DEFAULT"
    return f"kernels-{unit.lower()}-{digest.hexdigest()[:12]}.so"


def sources() -> list[str]:
    """The files that a compiler takes."""
    return [str(HERE / source) for source in SOURCES if source.endswith(".c")]
