"""What pyproject.toml cannot say: the commit goes into what is built, and so do kernels on demand.

`FEDPN_PREBUILT=yes` makes a wheel for this kind of machine with the kernels built ahead, a library
for each vector unit; else the wheel is for all machines, which build them on first use.
"""

import os
import runpy
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
KERNELS = Path("fedpn", "nn", "kernels")
COMMIT = Path("fedpn", "_commit.txt")
PREBUILT = os.environ.get("FEDPN_PREBUILT", "") not in ("", "no", "0")


def commit() -> str:
    """The commit of this tree, marked where files differ from it; nothing where there is none."""
    if not (HERE / ".git").exists():  # an unpacked sdist, which may lie in somebody's repository
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(
            command, cwd=HERE, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_commit(place: Path) -> None:
    if found := commit():
        place.write_text(found + "\n")


def build_kernels(place: Path) -> None:
    """Leaves OpenMP unlinked: its functions are found in the library that PyTorch has loaded."""
    recipe = runpy.run_path(str(HERE / "src" / KERNELS / "recipe.py"))
    if not recipe["is_x86"]():
        raise SystemExit("kernels are built ahead for x86-64 alone; leave FEDPN_PREBUILT out")
    compiler = os.environ.get("CC", "cc")
    for unit, flags in recipe["UNITS"].items():
        with tempfile.TemporaryDirectory() as objects:
            compiled = [compiler, *recipe["FLAGS"], *flags, "-fopenmp", "-c", *recipe["sources"]()]
            subprocess.run(compiled, cwd=objects, check=True)
            parts = sorted(map(str, Path(objects).glob("*.o")))
            library = str(place / recipe["prebuilt"](unit))
            subprocess.run([compiler, "-shared", "-s", *parts, "-o", library, "-lm"], check=True)


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return PREBUILT


class Build(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        place = Path(self.build_lib)
        write_commit(place / COMMIT)
        if PREBUILT:
            build_kernels((place / KERNELS).resolve())


class Source(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir, "src", COMMIT))


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """The libraries are called by ctypes: any Python will do, but not any machine."""
        return "py3", "none", super().get_tag()[2]


setup(distclass=Package, cmdclass={"build_py": Build, "sdist": Source, "bdist_wheel": Wheel})
