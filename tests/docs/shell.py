"""Commands of a block as a shell reads them: loops, quotes and continued lines are bash's."""

import shutil
import subprocess

import pytest

RECORDED = ("fedpn", "pip", "make", "curl")
# Each call is written down, and nothing of it is done: the test does it.
PRELUDE = "set -euf\n" + "".join(
    f"{name}() {{ printf '%s\\0' {name} \"$@\"; printf '\\036'; }}\n" for name in RECORDED
)


def calls(script, where):
    """The commands of a script with their arguments, in the order in which they would be run."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    told = subprocess.run(
        [bash, "--noprofile", "--norc", "-c", PRELUDE + script],
        cwd=where,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert told.returncode == 0, f"bash does not understand it: {told.stderr.decode()}"
    texts = told.stdout.decode().split("\x1e")[:-1]
    return [text.removesuffix("\0").split("\0") for text in texts]
