"""Which fedpn this is: its version, and the commit that it was made from where that is known."""

import subprocess
from importlib.resources import files
from pathlib import Path

import fedpn

WRITTEN = "_commit.txt"  # by the build of a package
SECONDS = 5  # that git may take
LONG = 40  # letters of a commit


def version() -> str:
    """What `fedpn --version` says."""
    commit = _written() or _of_checkout(Path(fedpn.__file__).parents[2])
    return f"fedpn {fedpn.__version__}" + (f" ({commit[:12]})" if commit else "")


def _written() -> str:
    """The commit that a package was built from."""
    try:
        text = files("fedpn").joinpath(WRITTEN).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if _is_commit(text) else ""


def _of_checkout(root: Path) -> str:
    """The commit of the checkout that this file is in, "" where it is in none."""
    if not (root / ".git").exists() or not (root / "src" / "fedpn").is_dir():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip() if _is_commit(told.stdout.strip()) else ""


def _is_commit(text: str) -> bool:
    """
    >>> _is_commit("f7a1ca3"), _is_commit("no commit"), _is_commit("")
    (True, False, False)
    """
    return 7 <= len(text) <= LONG and set(text) <= set("0123456789abcdef")
