"""What pyproject.toml cannot say: a build records the commit and compiles the kernels.

`FEDPN_PREBUILT=yes` refuses to build without a C compiler, `FEDPN_PREBUILT=no` builds without one.
The kernels are called by ctypes, so one wheel serves every Python of a platform.
"""

import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT = "fedpn/_commit.txt"


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the commit to what is built, and the kernels to wheels and editable installs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src")
        if version != "editable" and (commit := _commit(Path(self.root), source / COMMIT)):
            self.scratch = tempfile.TemporaryDirectory()
            file = Path(self.scratch.name, "commit")
            file.write_text(commit + "\n")
            place = COMMIT if self.target_name == "wheel" else f"src/{COMMIT}"
            build_data["force_include"][str(file)] = place
        if self.target_name == "wheel" and _compile(source / "fedpn/nn/kernels"):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"


def _commit(root: Path, kept: Path) -> str:
    """Return the commit of this tree, marked where files differ from it, or "" without one."""
    if kept.exists():  # in an sdist, which may lie in somebody else's repository
        return kept.read_text().strip()
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip() if (root / ".git").exists() else ""


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _compile(place: Path) -> bool:
    """Compile one library for each vector unit; return whether there are any.

    OpenMP is not linked: its functions are those of the library that PyTorch has loaded.
    """
    wanted = os.environ.get("FEDPN_PREBUILT", "auto")
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or ""]
    for stale in place.glob("kernels-*.so"):
        stale.unlink()
    if wanted in ("no", "0") or os.name == "nt" or not shutil.which(compiler[0]):
        if wanted in ("yes", "1"):
            raise SystemExit("FEDPN_PREBUILT=yes needs a C compiler: set $CC")
        return False
    recipe = runpy.run_path(str(place / "recipe.py"))
    is_mac = platform.system() == "Darwin"
    common = [*recipe["FLAGS"], *shlex.split(os.environ.get("ARCHFLAGS", ""))]
    link = ["-shared", *(["-undefined", "dynamic_lookup"] if is_mac else ["-s"])]
    try:
        for unit, flags in recipe["units"]().items():
            with tempfile.TemporaryDirectory() as objects:
                threads = [] if is_mac else ["-fopenmp"]
                command = [*compiler, *common, *flags, *threads, "-c", *recipe["sources"]()]
                subprocess.run(command, cwd=objects, check=True)
                parts = sorted(map(str, Path(objects).glob("*.o")))
                library = str(place / recipe["prebuilt"](unit))
                subprocess.run([*compiler, *link, *parts, "-o", library, "-lm"], check=True)
    except subprocess.CalledProcessError:
        if wanted in ("yes", "1"):
            raise
        return False  # PyTorch's own operations serve, and `fedpn doctor` says so
    return True
