"""The environment of Flower's programs: silent, self-contained, found beside this Python."""

import os
import sysconfig
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.core.extras import hint, is_here

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Otherwise Flower would install an app's dependencies, PyTorch with all of CUDA among them.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
}


def environment(home: Path | None = None) -> dict[str, str]:
    """The environment of a Flower process; `home` is where it keeps its own files."""
    variables = os.environ | QUIET
    variables.pop("FORCE_COLOR", None)  # which notebooks set, and which outweighs NO_COLOR
    # Flower starts its other programs by name.
    variables["PATH"] = os.pathsep.join(filter(None, [str(_scripts()), os.environ.get("PATH")]))
    if home is not None:
        variables["FLWR_HOME"] = str(home.resolve())
    return variables


def program(name: str) -> str:
    """The path of one of Flower's programs."""
    path = _scripts() / name
    if not is_here("flwr") or not path.exists():
        raise UserError(f"Flower is not installed here; try: {hint('flwr')}")
    return str(path)


def own_home() -> Path | None:
    """The user's own FLWR_HOME, where one is set."""
    value = os.environ.get("FLWR_HOME")
    return Path(value) if value else None


def _scripts() -> Path:
    return Path(sysconfig.get_path("scripts"))
