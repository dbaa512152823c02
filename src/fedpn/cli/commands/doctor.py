"""fedpn doctor: what this machine gives a run."""

import argparse
import os
import platform
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.extras import EXTRAS, is_here


def add(commands: Any) -> None:
    command(commands, "doctor", _doctor, "tell what this machine gives a run")


def _doctor(options: argparse.Namespace) -> None:
    import torch

    import fedpn
    from fedpn.data.sources.datasets import cache
    from fedpn.nn import kernels
    from fedpn.runs.prepare import find_device

    missing = {extra for module, extra in EXTRAS.items() if not is_here(module)}
    there = [extra for extra in dict.fromkeys(EXTRAS.values()) if extra not in missing]
    lines = {
        "fedpn": fedpn.__version__,
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "device": find_device("auto").type,
        "kernels": kernels.status(),
        "data": os.environ.get("FEDPN_DATA") or "$FEDPN_DATA is not set",
        "cache": str(cache()),
        "extras": ", ".join(there) or "none",
    }
    for name, value in lines.items():
        print(f"{name:<8}  {value}")
