"""One round of the paper's work, side by side: 20 clients × 10 steps × 64 rows, LeNet-5, 10 flows.

    loop_fedavg    a loop over clients as people write it: module, DataLoader, torch.optim
    fedavg         ours                        fedavg_eager   ours with FEDPN_KERNELS=off
    loop_fedpn     the same loop with one stack of pyro-ppl's Radial per class, as the authors do
    fedpn          ours                        fedpn_eager    ours with FEDPN_KERNELS=off
    limit          FedPN's counted arithmetic at the speed of a large matrix product

All take turns in one process; each figure is the best of its turns. One thread is told in CPU
seconds, more in wall seconds. The authors' loop plays one client and a few steps, and is scaled.
"""

import os

# Threads that wait for others sleep instead of spinning, for all alike: on a machine that has
# other work too, spinning steals the time of those that are waited for. Read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import copy
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from fedpn.algorithms import ALGORITHMS
from fedpn.core.task import Data
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation
from fedpn.federated.checkpoint import State
from fedpn.federated.listener import Listener
from fedpn.federated.settings import TrainSettings
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Network, Setup
from fedpn.federated.training import Train
from fedpn.nn import kernels
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import parameters

CLIENTS, STEPS, BATCH, CLASSES, DIM, LAYERS, ROWS = 20, 10, 64, 10, 16, 30, 700
MEAN, STD = 127.5, 74.0
SAMPLE = 3  # steps of one client that the authors' loop plays


def federation() -> tuple[Data, list[np.ndarray]]:
    """Noise in the shape of MNIST; each client has three classes."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (CLIENTS * ROWS, 1, 28, 28), np.uint8))
    y = [(rng.integers(0, 3, ROWS) + 3 * c) % CLASSES for c in range(CLIENTS)]
    rows = list(np.arange(CLIENTS * ROWS).reshape(CLIENTS, ROWS))
    return Data(x, torch.from_numpy(np.concatenate(y))), rows


def ours(name: str, data: Data, rows: list[np.ndarray]) -> Callable[[], None]:
    """Our engine, a round at a time."""
    method = ALGORITHMS[name]()
    kind = method.network
    blueprint = Blueprint(
        kind, (1, 28, 28), CLASSES, "lenet5", DIM, "radial", LAYERS, [MEAN], [STD]
    )
    model = build_model(blueprint, 0, method.loss_options())
    x, y, nobody = data.x.numpy(), data.y.numpy(), (np.arange(0),) * CLIENTS
    setup = Setup(
        Dataset("noise", x, y, tuple(map(str, range(CLASSES)))),
        Federation(y, tuple(rows), nobody, nobody, 0),
        data,
        Network(blueprint, model, parameters(model.network)),
    )
    simulator = Simulator(setup, method, 0)
    phase = Train(method, TrainSettings(steps=STEPS, batch=BATCH), 0)
    state, everybody = State(method.init(model.task, setup.fresh)), np.arange(CLIENTS)

    def play() -> None:
        heard = simulator.gather(phase, state, everybody, Listener())
        assert heard.total is not None
        phase.server(state.server, heard.total)

    return play


def lenet() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, DIM)),
    )


def head() -> nn.Sequential:
    return nn.Sequential(nn.Linear(DIM, 3 * DIM), nn.ReLU(), nn.Linear(3 * DIM, CLASSES))


class Posterior(nn.Module):
    """A posterior network as its authors build it: a list of flows, all of them evaluated."""

    def __init__(self) -> None:
        super().__init__()
        from pyro.distributions.transforms import Radial

        self.encoder, self.head = lenet(), head()
        self.flows = nn.ModuleList(
            nn.ModuleList(Radial(DIM) for _ in range(LAYERS)) for _ in range(CLASSES)
        )

    def log_prob(self, z: Tensor) -> Tensor:
        columns = []
        for flow in self.flows:
            x, log_det = z, 0.0
            for layer in flow:
                y = layer(x)
                log_det = log_det + layer.log_abs_det_jacobian(x, y)
                x = y
            columns.append(log_det - 0.5 * x.square().sum(-1) - 0.5 * DIM * math.log(2 * math.pi))
        return torch.stack(columns, -1)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        z = self.encoder(x)
        log_p = self.log_prob(z).gather(-1, y[:, None]).squeeze(-1)
        evidence = (log_p + 0.5 * math.log(4 * math.pi) * DIM).clamp(-50, 50).exp()
        alpha = 1 + evidence[:, None] * self.head(z).softmax(-1)
        label = alpha.gather(-1, y[:, None]).squeeze(-1)
        uce = torch.digamma(alpha.sum(-1)) - torch.digamma(label)
        return (uce - 0.01 * log_p).mean()


def loop(
    make: Callable[[], nn.Module],
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor],
    data: Data,
    rows: list[np.ndarray],
    clients: int = CLIENTS,
    steps: int = STEPS,
) -> Callable[[], None]:
    """FedAvg, one client after the other."""
    images = (data.x.float() - MEAN) / STD
    dataset = TensorDataset(images, data.y)
    loaders = [DataLoader(Subset(dataset, r.tolist()), BATCH, shuffle=True) for r in rows]
    server = make()

    def play() -> None:
        uploads = []
        for loader in loaders[:clients]:
            model = copy.deepcopy(server).train()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            for (x, y), _ in zip(loader, range(steps), strict=False):
                optimizer.zero_grad()
                loss(model, x, y).backward()
                optimizer.step()
            uploads.append(model.state_dict())
        mean = {n: torch.stack([u[n] for u in uploads]).mean(0) for n in uploads[0]}
        server.load_state_dict(mean)

    return play


def arithmetic() -> float:
    """The floating-point operations of one round of FedPN, nothing skipped.

    A layer's product is computed thrice (forwards, for its weights and for its input), the first
    layer's twice, since images need no gradient. A radial layer is about 15 D + 50 per row.
    """
    first = 2 * 24 * 24 * 6 * 25
    dense = sum(a * b for a, b in ((256, 120), (120, 84), (84, DIM)))
    dense += DIM * 3 * DIM + 3 * DIM * CLASSES
    rest = 2 * (8 * 8 * 16 * 150 + dense)
    row = 2 * first + 3 * rest + LAYERS * (15 * DIM + 50)
    return float(CLIENTS * STEPS * BATCH * row)


def product(size: int = 1024) -> Callable[[], None]:
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)

    def play() -> None:
        torch.mm(a, b, out=out)

    return play


def contenders() -> dict[str, tuple[Callable[[], None], float]]:
    """Name -> what to time, and by what to multiply its seconds."""
    data, rows = federation()
    fedavg, fedpn = ours("fedavg", data, rows), ours("fedpn", data, rows)

    def eager(play: Callable[[], None]) -> Callable[[], None]:
        def off() -> None:
            os.environ["FEDPN_KERNELS"] = "off"
            try:
                play()
            finally:
                del os.environ["FEDPN_KERNELS"]

        return off

    plain = loop(
        lambda: nn.Sequential(lenet(), head()),
        lambda model, x, y: F.cross_entropy(model(x), y),
        data,
        rows,
    )
    peers: dict[str, tuple[Callable[[], None], float]] = {}
    try:
        authors = loop(Posterior, lambda model, x, y: model.loss(x, y), data, rows, 1, SAMPLE)
        peers["loop_fedpn"] = (authors, CLIENTS * STEPS / SAMPLE)
    except ImportError:
        print("pyro-ppl is not installed: loop_fedpn is left out")
    return {
        "limit": (product(), arithmetic() / (2 * 1024**3)),
        "loop_fedavg": (plain, 1.0),
        "fedavg": (fedavg, 1.0),
        "fedavg_eager": (eager(fedavg), 1.0),
        **peers,
        "fedpn": (fedpn, 1.0),
        "fedpn_eager": (eager(fedpn), 1.0),
    }


def measure(repeats: int, threads: list[int], only: list[str]) -> dict[str, dict[str, float]]:
    """Lets all take turns; the first turn warms up."""
    table = {n: c for n, c in contenders().items() if not only or n in only}
    best: dict[str, dict[str, float]] = {str(t): {} for t in threads}
    for turn in range(repeats + 1):
        for count in threads:
            torch.set_num_threads(count)
            clock = time.process_time if count == 1 else time.perf_counter
            for name, (play, scale) in table.items():
                times = best[str(count)]
                for _ in range(20 if name == "limit" else 1):
                    began = clock()
                    play()
                    seconds = (clock() - began) * scale
                    if turn:
                        times[name] = min(seconds, times.get(name, math.inf))
    return best


def report(results: dict[str, dict[str, float]]) -> None:
    """Prints a table, and the ratios that matter where their parts were measured."""
    ratios = [
        ("fedpn", "limit"),
        ("fedpn_eager", "fedpn"),
        ("loop_fedavg", "fedavg"),
        ("fedavg_eager", "fedavg"),
        ("loop_fedpn", "fedpn"),
        ("fedpn", "fedavg"),
    ]
    print(kernels.status())
    for count, times in results.items():
        print(f"\n{count} thread(s), {'CPU' if count == '1' else 'wall'} seconds a round")
        for name, seconds in times.items():
            print(f"  {name:14} {seconds:8.3f}")
        for a, b in ratios:
            if a in times and b in times:
                print(f"  {a} / {b} = {times[a] / times[b]:.2f}")
    first, *others = results
    for count in others:
        for name in ("fedavg", "fedpn"):
            if name in results[first] and name in results[count]:
                gain = results[first][name] / results[count][name]
                print(f"\n{name}: {count} threads are {gain:.2f} × as fast as {first}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    results = measure(options.repeats, options.threads, options.only)
    report(results)
    if options.json:
        options.json.write_text(json.dumps({"threads": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
