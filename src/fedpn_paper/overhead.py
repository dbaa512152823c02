"""What the density costs: parameters, and its share of the time of training and inference."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.task import Data
from fedpn.core.trees import public
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation
from fedpn.federated.listener import Listener, Stopped
from fedpn.federated.observer import CHUNK, view
from fedpn.federated.settings import TrainSettings
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Network, Setup, Site
from fedpn.federated.training import Train
from fedpn.nn import kernels
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import parameters
from fedpn.reporting.plots import INK
from fedpn_paper.figure import Result, Settings, legend_below, page

TITLE = (
    "The density adds an eighth to LeNet-5's parameters; its time shows where encoders are small"
)
CLASSES, DIM, LAYERS = 10, 16, 30
PAPER = {"encoder": 55_000, "flows": 5_000}
PARTS = {"encoder": "#3b82c4", "head": "#a078c8", "flows": "#e08a1e"}
WAYS = {
    "label": "training, label's flow",
    "marginal": "training, all flows",
    "inference": "inference, all flows",
}
RANGE = ("low", "median", "high")


class Bench(NamedTuple):
    """An encoder, and how much work is timed with it."""

    name: str
    encoder: str
    shape: tuple[int, int, int]
    clients: int
    steps: int
    rows: int  # of inference
    repeats: int


FULL = (
    Bench("LeNet-5, 28×28", "lenet5", (1, 28, 28), 20, 10, 4096, 9),
    Bench("LeNet-5, 32×32 RGB", "lenet5", (3, 32, 32), 20, 10, 4096, 5),
    Bench("ResNet-18, 32×32 RGB", "resnet18", (3, 32, 32), 1, 2, 256, 5),
)
QUICK = (
    Bench("LeNet-5, 28×28", "lenet5", (1, 28, 28), 2, 1, 128, 2),
    Bench("LeNet-5, 32×32 RGB", "lenet5", (3, 32, 32), 2, 1, 128, 2),
)


def network_of(bench: Bench, algorithm: FedAvg) -> Network:
    """The network of an algorithm, for bytes of this shape."""
    blueprint = Blueprint(
        kind=algorithm.network,
        shape=bench.shape,
        classes=CLASSES,
        encoder=bench.encoder,
        dim=DIM,
        density="radial",
        layers=LAYERS,
        mean=(128.0,) * bench.shape[0],
        std=(64.0,) * bench.shape[0],
    )
    model = build_model(blueprint, 0, algorithm.loss_options())
    return Network(blueprint, model, parameters(model.network))


def count(bench: Bench) -> dict[str, int]:
    """Parameters of the encoder, the head and the flows; statistics do not count."""
    network = network_of(bench, FedPN()).model.network
    names = {"encoder": "encoder.", "head": "head.", "flows": "density."}
    return {
        part: sum(p.numel() for name, p in network.named_parameters() if name.startswith(mark))
        for part, mark in names.items()
    }


def training(bench: Bench, algorithm: FedAvg, data: Data) -> Callable[[], object]:
    """A round of stacked clients, as the simulator plays it."""
    setup = _setup(bench, algorithm, data)
    phase = Train(algorithm, TrainSettings(steps=bench.steps), seed=0)
    clients = range(bench.clients)
    remembered = Simulator(setup, algorithm, seed=0).memories
    sites, memories = [Site(c, setup) for c in clients], [remembered[c] for c in clients]
    sent = public(algorithm.init(setup.model.task, setup.fresh))
    return lambda: phase.cohort(sites, sent, memories, lambda: None)


def _setup(bench: Bench, algorithm: FedAvg, data: Data) -> Setup:
    """As many rows for each client to train on, and none for anything else."""
    x, y = data.x.numpy(), data.y.numpy()
    rows = tuple(np.split(np.arange(len(y)), bench.clients))
    none = tuple(mine[:0] for mine in rows)
    dataset = Dataset("noise", x, y, tuple(map(str, range(CLASSES))))
    federation = Federation(y, rows, none, none, seed=0)
    return Setup(dataset, federation, data, network_of(bench, algorithm))


def inference(bench: Bench, posterior: bool, x: Tensor) -> Callable[[], object]:
    """Answers for some rows: the softmax of the head alone, or with densities and all scores."""
    network = network_of(bench, FedPN() if posterior else FedAvg())
    model, params = network.model, network.fresh

    @torch.no_grad()
    def work() -> None:
        for part in torch.split(x[: bench.rows], CHUNK):
            z = model.embed(params, part)
            if posterior:
                view(model, params, z)
            else:
                model.logits(params, z).softmax(-1)

    return work


def alternate(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each, in turns, so that a busy machine slows all alike; the first is void."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            began = time.process_time()
            work()
            seconds[name].append(time.process_time() - began)
    return {name: column[1:] for name, column in seconds.items()}


def run(out: Path, settings: Settings, listener: Listener) -> Result:
    """Counts and times every encoder; nothing here is learned, so the data are noise."""
    benches = QUICK if settings.quick else FULL
    encoders = []
    with single_thread():
        for done, bench in enumerate(benches):
            listener.progress("timing", done, len(benches))
            if listener.stopping():
                raise Stopped(f"after {done} of {len(benches)} encoders")
            rng = torch.Generator().manual_seed(settings.seeds[0])
            size = max(64 * bench.clients, bench.rows) // bench.clients * bench.clients
            x = torch.randint(0, 256, (size, *bench.shape), generator=rng).to(torch.uint8)
            data = Data(x, torch.randint(0, CLASSES, (size,), generator=rng))
            seconds = alternate(
                {
                    "classifier": training(bench, FedAvg(), data),
                    "label": training(bench, FedPN(), data),
                    "marginal": training(bench, FedPN(train_density="marginal"), data),
                },
                bench.repeats,
            )
            answered = alternate(
                {w: inference(bench, w == "posterior", x) for w in ("classifier", "posterior")},
                bench.repeats,
            )
            shares = {way: _share(seconds["classifier"], seconds[way]) for way in list(WAYS)[:2]}
            shares["inference"] = _share(answered["classifier"], answered["posterior"])
            encoders.append({"name": bench.name, "parameters": count(bench), "share": shares})
    sizes = {
        "classes": CLASSES,
        "dim": DIM,
        "layers": LAYERS,
        "kernels": kernels.status().split(":")[0],
    }
    return {"data": [], "sizes": sizes, "encoders": encoders}


@contextmanager
def single_thread() -> Iterator[None]:
    """Keeps PyTorch to one thread for a while: threads that wait count as CPU time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _share(without: list[float], with_density: list[float]) -> dict[str, float]:
    """The density's part of the time, over pairs that were timed one after the other."""
    shares = 1 - np.array(without) / np.array(with_density)
    return dict(zip(RANGE, np.quantile(shares, [0, 0.5, 1]).tolist(), strict=True))


def draw(result: Result) -> Figure:
    """Parameters by part, and the density's share of the time."""
    sizes = result["sizes"]
    foot = (
        f"K = {sizes['classes']}, D = {sizes['dim']}, {sizes['layers']} radial layers a class; "
        "CPU seconds of one thread, alternating with the same encoder under a softmax head; bars: "
        f"medians, lines: range; kernels: {sizes['kernels']}"
    )
    figure = page(result["title"], 10.5, 4.2, foot)
    left, right = figure.subplots(1, 2)
    _draw_parameters(left, result["encoders"])
    _draw_shares(right, result["encoders"])
    return figure


def _draw_parameters(ax: Axes, encoders: list[Result]) -> None:
    places = np.arange(len(encoders))
    for i, (part, colour) in enumerate(PARTS.items()):
        counts = [e["parameters"][part] for e in encoders]
        bars = ax.barh(places + 0.27 * (i - 1), counts, 0.25, color=colour, label=part)
        ax.bar_label(bars, [f"{n:,}" for n in counts], fontsize=8, padding=3)
    ax.set(xscale="log", xlim=(300, 3e8), xlabel="parameters", title="parameters")
    ax.set_yticks(places, [e["name"].replace(", ", "\n") for e in encoders])
    ax.invert_yaxis()
    legend_below(ax, 3)


def _draw_shares(ax: Axes, encoders: list[Result]) -> None:
    for i, (way, label) in enumerate(WAYS.items()):
        places = np.arange(len(encoders)) + 0.27 * (i - 1)
        shares = [e["share"][way] for e in encoders]
        low, middle, high = (100 * np.array([s[k] for s in shares]) for k in RANGE)
        ax.barh(places, middle, 0.25, color=("#1f9e74", "#c8553d", "#3b82c4")[i], label=label)
        ax.hlines(places, low, high, color=INK, linewidth=1)
        for place, value, end in zip(places, middle, high, strict=True):
            ax.text(max(end, 0) + 1, place, f"{_percent(value)} %", fontsize=8, va="center")
    ax.set(xlabel="share of the time (%)", title="time that the density takes")
    ax.set_xlim(right=1.15 * ax.get_xlim()[1])
    ax.set_yticks(range(len(encoders)), [""] * len(encoders))
    ax.invert_yaxis()
    legend_below(ax, 3)


def _percent(value: float) -> str:
    """
    >>> _percent(16.7), _percent(-1.2)
    ('17', '−1')
    """
    return f"{value:.0f}".replace("-0", "0").replace("-", "−")


def say(result: Result) -> str:
    """Counts beside the paper's, and shares of the time."""
    first = result["encoders"][0]
    counts = first["parameters"]
    times = "; ".join(
        f"{e['name']}: {_percent(100 * e['share']['label']['median'])} % of training "
        f"({_percent(100 * e['share']['marginal']['median'])} % where all flows are computed in "
        f"training), {_percent(100 * e['share']['inference']['median'])} % of inference"
        for e in result["encoders"]
    )
    return (
        f"Our LeNet-5 has {counts['encoder']:,} parameters in the encoder, {counts['head']:,} in "
        f"the head and {counts['flows']:,} in the flows, "
        f"{100 * counts['flows'] / counts['encoder']:.0f} % of the encoder's (the paper: about "
        f"{PAPER['encoder']:,} and {PAPER['flows']:,}). In parameters the overhead is as mild as "
        "the paper says. In CPU time the density takes, against the same encoder under a softmax "
        f"head, {times}: not free beside a small encoder, and less the larger the encoder. Medians "
        "on a shared machine; single pairs range as the lines in the figure."
    )
