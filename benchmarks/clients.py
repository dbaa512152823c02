"""Time per round and peak anonymous memory for 10 to 10,000 clients, 100 of whom join at most.

Every federation deals the same 70,000 synthetic images; the algorithm is Ditto, which remembers a
whole model and its momentum for every client. Each size runs in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROWS = 70_000


def anonymous() -> int:
    """The process's anonymous memory, in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])
    raise RuntimeError("this system does not tell anonymous memory apart")


def measure(clients: int, rounds: int, algorithm: str) -> dict[str, float]:
    """Plays some rounds and watches the memory."""
    import numpy as np
    import torch

    from fedpn.algorithms import ALGORITHMS
    from fedpn.core.task import Data
    from fedpn.data.dataset import Dataset
    from fedpn.data.federation import Federation
    from fedpn.data.partition import iid
    from fedpn.federated.checkpoint import State
    from fedpn.federated.listener import Listener
    from fedpn.federated.settings import TrainSettings
    from fedpn.federated.simulator import Simulator
    from fedpn.federated.site import Network, Setup
    from fedpn.federated.training import Train
    from fedpn.nn.blueprint import Blueprint, build_model
    from fedpn.nn.posterior import parameters

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (ROWS, 1, 28, 28), np.uint8)
    labels = rng.integers(0, 10, ROWS)
    rows, nobody = tuple(iid(labels, clients, 0)), (np.arange(0),) * clients
    blueprint = Blueprint(
        "classifier", (1, 28, 28), 10, "lenet5", 16, "radial", 30, [127.5], [74.0]
    )
    model, method = build_model(blueprint, 0), ALGORITHMS[algorithm]()
    join = min(1.0, 100 / clients)
    work = TrainSettings(steps=2, batch=16, join=join)
    setup = Setup(
        Dataset("noise", images, labels, tuple("0123456789")),
        Federation(labels, rows, nobody, nobody, 0),
        Data(torch.from_numpy(images), torch.from_numpy(labels)),
        Network(blueprint, model, parameters(model.network)),
    )
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], anonymous())
            time.sleep(0.005)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memories.bin"
        simulator = Simulator(setup, method, 0, cohort=20, path=path)
        phase = Train(method, work, 0, rounds)
        state = State(method.init(model.task, setup.fresh))
        threading.Thread(target=watch, daemon=True).start()
        began = time.process_time()
        for round_ in range(rounds):
            joined = phase.joining(clients, round_)
            heard = simulator.gather(phase, state, joined, Listener())
            assert heard.total is not None
            state = State(phase.server(state.server, heard.total), round_ + 1)
            simulator.keep()
        seconds = (time.process_time() - began) / rounds
        done.set()
    return {"joined": round(join * clients), "seconds": seconds, "megabytes": peak[0] / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--algorithm", default="ditto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.clients[0], options.rounds, options.algorithm)))
        return
    table = {}
    print("clients  joined  CPU s/round  peak anonymous MB")
    for clients in options.clients:
        flags = ["--rounds", str(options.rounds), "--algorithm", options.algorithm, "--child"]
        command = [sys.executable, __file__, "--clients", str(clients), *flags]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        found = table[str(clients)] = json.loads(result.stdout)
        print("{:7d}  {joined:6d}  {seconds:11.2f}  {megabytes:17.0f}".format(clients, **found))
    if {"100", "10000"} <= table.keys():
        ratio = table["10000"]["megabytes"] / table["100"]["megabytes"]
        print(f"memory of 10,000 clients, 100 joining, against 100 all joining: {ratio:.2f}×")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
