"""A service on loopback: throughput and waiting times at 1, 8 and 64 callers, batched and not.

    python benchmarks/serve.py [--requests 2000] [--soak 100000]

Callers are threads of this process with a connection each; every answer is compared with the
library's. `--soak` sends so many requests more and watches the memory of the service.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import fedpn

CALLERS = (1, 8, 64)


def start(run: Path, place: Path, linger: str, batch: str) -> tuple[subprocess.Popen, int]:
    """A service in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys; from pathlib import Path; from fedpn.service.app import make_app; "
        "from fedpn.service.listen import make_server; "
        "from fedpn.service.library import Library; from fedpn.service.limits import Limits; "
        "from fedpn.service.decisions import Decisions; "
        "limits = Limits(linger=float(sys.argv[3]), batch=int(sys.argv[4])); "
        "kept = Decisions(f'sqlite:///{sys.argv[5]}'); "
        "app = make_app(Library([Path(sys.argv[1])]), decisions=kept, limits=limits); "
        "make_server(app, '127.0.0.1', int(sys.argv[2]), limits).run()"
    )
    arguments = [str(run), str(port), linger, batch, str(place / f"{port}.db")]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments])
    for _ in range(300):
        try:
            ask(HTTPConnection("127.0.0.1", port, timeout=10), "GET", "/healthz")
            return process, port
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the service did not start")


def ask(line: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    line.request(method, path, body, {"Content-Type": "application/json"})
    response = line.getresponse()
    content = response.read()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {content[:200]!r}")
    return content


def load(
    service: tuple[subprocess.Popen, int],
    callers: int,
    requests: int,
    bodies: list[bytes],
    truth: list[str],
) -> dict:
    """So many callers send so many requests in all, one input each."""
    took: list[float] = []
    (process, port), wrong = service, 0
    before = cpu(process.pid)

    def call(first: int) -> None:
        nonlocal wrong
        line = HTTPConnection("127.0.0.1", port, timeout=60)
        for i in range(first, requests, callers):
            began = time.perf_counter()
            told = json.loads(ask(line, "POST", "/v1/predict", bodies[i % len(bodies)]))
            took.append(time.perf_counter() - began)
            wrong += told["answers"][0]["guess"] != truth[i % len(truth)]
        line.close()

    threads = [threading.Thread(target=call, args=(i,)) for i in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    cut = statistics.quantiles(took, n=100)
    return {
        "callers": callers,
        "requests/s": round(len(took) / seconds, 1),
        "p50 ms": round(1000 * cut[49], 1),
        "p99 ms": round(1000 * cut[98], 1),
        "CPU ms a request": round(1000 * (cpu(process.pid) - before) / len(took), 2),
        "answers unlike the library's": wrong,
    }


def cpu(pid: int) -> float:
    """Seconds that a process has worked."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Megabytes that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) // 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=1000)
    options.add_argument("--soak", type=int, default=0)
    asked = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        fedpn.run(run, dataset="digits", clients=4)
        x = fedpn.open_dataset("digits").x[:200]
        truth = [a.guess for a in fedpn.load(run, "0")(x, own_share=0.5)]
        bodies = [
            json.dumps({"client": "0", "inputs": [row[0].tolist()], "own_share": 0.5}).encode()
            for row in x
        ]
        ways = {"batched": ("0.004", "256"), "one at a time": ("0", "1")}
        services = {name: start(run, Path(place), *way) for name, way in ways.items()}
        try:
            for callers in CALLERS:
                for name, service in services.items():  # by turns: the machine is shared
                    load(service, callers, 50, bodies, truth)
                    print(name, load(service, callers, asked.requests, bodies, truth), flush=True)
            process, _ = services["batched"]
            for done in range(0, asked.soak, 10_000):
                load(services["batched"], 16, 10_000, bodies, truth)
                print(f"{done + 10_000} requests more: {memory(process.pid)} MB", flush=True)
        finally:
            for process, _ in services.values():
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    main()
