"""How the C sources become a library: for the first use, and for `setup.py`, which has no PyTorch.

There is one form for each of the vector units that PyTorch tells apart on x86-64, with exactly the
instructions it looks for. So a library that came with the package and one that the same compiler
builds here give the same bits, and none has an instruction that the CPU lacks.
"""

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


def prebuilt(unit: str) -> str:
    """The name of the library that a wheel has for a vector unit.

    >>> prebuilt("AVX2")
    'kernels-avx2.so'
    """
    return f"kernels-{unit.lower()}.so"


def sources() -> list[str]:
    """The files that a compiler takes."""
    return [str(HERE / source) for source in SOURCES if source.endswith(".c")]
