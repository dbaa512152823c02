"""What people do first, with an installed package in an empty folder: `make package` runs it.

python main_job.py run: the main job without a compiler in reach, answers from a file, an exported
folder. python main_job.py serve: then an answer over HTTP. Says how long each took.
"""

import json
import os
import platform
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

PLACE = Path(sys.executable).parent
FEDPN = str(PLACE / "fedpn")
PATIENCE = 120  # seconds for a service to be ready
# Neither a compiler nor other people's programs: what the package brought must do.
ALONE = {k: v for k, v in os.environ.items() if k != "CC"} | {"PATH": str(PLACE)}


def fedpn(*words: str) -> str:
    began = time.monotonic()
    done = subprocess.run([FEDPN, *words], env=ALONE, check=True, stdout=subprocess.PIPE, text=True)
    print(f"fedpn {' '.join(words)}: {time.monotonic() - began:.1f} s", flush=True)
    return done.stdout


def ask(address: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def wait(address: str, service: subprocess.Popen[bytes]) -> None:
    for _ in range(PATIENCE * 5):
        try:
            ask(address)
            return
        except OSError:
            if service.poll() is not None:
                sys.exit(f"the service ended with {service.returncode}")
            time.sleep(0.2)
    sys.exit(f"the service was not ready within {PATIENCE} seconds")


def served(image: np.ndarray) -> dict[str, object]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [FEDPN, "serve", "folder", "--port", str(port), "--decisions", "none"]
    began = time.monotonic()
    with subprocess.Popen(command, env=ALONE) as service:
        try:
            wait(f"{address}/readyz", service)
            answers = json.loads(ask(f"{address}/v1/predict", {"inputs": [image.tolist()]}))
        finally:
            service.terminate()
    print(f"fedpn serve, to the first answer and its end: {time.monotonic() - began:.1f} s")
    return answers["answers"][0]


def run() -> None:
    """The main job, answers from a file, an exported folder; with the kernels that were brought."""
    kernels = next(line for line in fedpn("doctor").splitlines() if line.startswith("kernels"))
    print(kernels)
    if sys.platform == "linux" and platform.machine() == "x86_64":
        assert "native: C that came with the package" in kernels
    print(fedpn("run", "--out", "run"))
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    np.savez("new.npz", images=images)
    assert len(fedpn("predict", "run", "new.npz", "--client", "office 1").splitlines()) >= 3
    fedpn("export", "run", "--client", "office 1", "--out", "folder")


def serve() -> None:
    """An answer over HTTP, from the exported folder."""
    print(served(np.load("new.npz")["images"][0]))


if __name__ == "__main__":
    {"run": run, "serve": serve}[sys.argv[1]]()
