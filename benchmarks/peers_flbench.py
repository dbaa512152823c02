"""Drives the servers and clients of a clone of FL-bench with our rows, weights and batches.

Its servers, its clients and its trainer run as they are in the checkout. What they import beside
that is replaced by as little as they need: settings (`hydra`, `omegaconf`), parallel workers
(`ray`), its data sets, networks, logs and figures of evaluation, which is left out.
"""

import copy
import importlib
import json
import pickle
import random
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
from peers_common import Feed, Side, accuracy, halves, named, plans_of
from peers_methods import METHODS, RATE, Peer, Tree
from torch import Tensor, nn

from fedpn.federated.site import Setup
from fedpn.runs.config import Config

MODELS: Tree = {}
DATASETS: Tree = {}
NAME = "ours"


class Options(dict[str, Any]):
    """Settings by attribute, as omegaconf has them."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def options_of(tree: Tree) -> Options:
    return Options({k: options_of(v) if isinstance(v, dict) else v for k, v in tree.items()})


class Decoupled(nn.Module):
    """Our network as FL-bench wants one."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.base, self.classifier = halves(setup)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.base(x))
        return logits

    def check_and_preprocess(self, args: Options) -> None:
        """FL-bench looks for buffers here; we have none."""


class Rows(list[int]):
    """A data set that is never read: batches come from feeds."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


class Silent:
    """A log, a metric: whatever is asked of it, nothing comes of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def log(self, *args: Any, **kwargs: Any) -> None: ...


class Shared:
    """The one worker's loader: whoever trains gets its own batches."""

    def __init__(self, worker: Any, feeds: list[Feed]) -> None:
        self.worker, self.feeds = worker, feeds

    def __len__(self) -> int:
        return len(self.feeds[self.worker.client_id])

    def __iter__(self) -> Any:
        return iter(self.feeds[self.worker.client_id])


def stand_in(checkout: Path) -> None:
    """Modules that FL-bench imports and that are not compared."""
    if str(checkout) in sys.path:
        return
    sys.path.insert(0, str(checkout))
    space = types.SimpleNamespace
    runtime = space(runtime=space(output_dir="none"))
    tools = {
        "evaluate_model": None,
        "fix_random_seed": lambda seed, use_cuda: random.seed(seed),
        "get_optimal_cuda_device": lambda use_cuda: torch.device("cpu"),
        "initialize_data_loaders": None,
    }
    constants = {
        "DATA_MEAN": {},
        "DATA_STD": {},
        "FLBENCH_ROOT": Path(),
        "LR_SCHEDULERS": {},
        "MODE": space(SERIAL="serial", PARALLEL="parallel"),
        "OPTIMIZERS": {"sgd": torch.optim.SGD},
    }
    package: Tree = {"__path__": []}
    wanted: Tree = {
        "ray": package,
        "ray.actor": {},
        "hydra": package,
        "hydra.core": package,
        "hydra.core.hydra_config": {"HydraConfig": space(get=lambda: runtime)},
        "omegaconf": {"DictConfig": Options, "OmegaConf": None},
        "torchvision": {"transforms": space(Compose=lambda steps: None)},
        "data": package,
        "data.utils": package,
        "data.utils.datasets": {"DATASETS": DATASETS, "BaseDataset": Rows},
        "src.utils.constants": constants,
        "src.utils.functional": tools,
        "src.utils.tools": tools,
        "src.utils.logger": {"Logger": Silent},
        "src.utils.metrics": {"Metrics": Silent},
        "src.utils.models": {"MODELS": MODELS, "DecoupledModel": nn.Module},
    }
    for name, entries in wanted.items():
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(entries)


def write_rows(setup: Setup, root: Path) -> None:
    """The rows of clients, where and as FL-bench reads them."""
    clients = list(range(setup.federation.clients))
    rows = [
        {"train": train.tolist(), "val": [], "test": test.tolist()}
        for train, test in zip(setup.federation.train, setup.federation.test, strict=True)
    ]
    groups = {"train": clients, "val": [], "test": clients, "total": len(clients)}
    folder = root / "data" / NAME
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps({}), encoding="utf-8")
    content = pickle.dumps({"separation": groups, "data_indices": rows})
    (folder / "partition.pkl").write_bytes(content)


def arguments(method: str, config: Config, own: Tree) -> Options:
    """FL-bench's options: all join, nothing is evaluated, saved or shown."""
    # A local epoch of its SCAFFOLD is a batch, and of its FedRep the last one is the body's.
    epochs = {"scaffold": config.train.steps, "fedrep": 2}.get(method, 1)
    no = {"train": False, "val": False, "test": False, "interval": 0}
    test = {"client": no | {"finetune_epoch": 1}, "server": no | {"model_in_train_mode": False}}
    off = ["use_cuda", "save_log", "save_learning_curve_plot", "save_metrics", "save_model"]
    off += ("client_side_evaluation", "straggler_ratio", "straggler_min_local_epoch", "seed")
    budget = {"global_epoch": config.rounds, "local_epoch": epochs, "join_ratio": 1.0}
    common = dict.fromkeys(off, 0) | budget | {"batch_size": config.train.batch, "test": test}
    common |= {"buffers": "global", "monitor": None, "verbose_gap": 10**9}
    common |= {"reset_optimizer_on_global_epoch": True}
    return options_of(
        {
            "mode": "serial",
            "dataset": {"name": NAME},
            "model": {"name": NAME, "external_model_weights_path": None}
            | {"use_torchvision_pretrained_weights": False},
            "optimizer": {"name": "sgd", "lr": RATE},
            "common": common,
            method: own,
        }
    )


def build(peer: Peer, options: Options, setup: Setup) -> Any:
    """Their server with its one worker."""
    MODELS[NAME] = lambda dataset, pretrained: Decoupled(setup)
    DATASETS[NAME] = lambda **options: Rows(range(len(setup.data.y)))
    base = importlib.import_module("src.server.fedavg")
    module = importlib.import_module(f"src.server.{peer.module}")
    with tempfile.TemporaryDirectory() as folder:
        write_rows(setup, Path(folder))
        vars(base)["FLBENCH_ROOT"] = Path(folder)
        server = getattr(module, peer.name)(options)
    server.train_progress_bar = range(options.common.global_epoch)  # without the bar
    return server


def play_theirs(checkout: Path, method: str, config: Config, setup: Setup, mend: bool) -> Side:
    """Lets their server train, then their clients personalise as they do when tested."""
    stand_in(checkout)
    peer, plans = METHODS[method].flbench, plans_of(config)
    own = peer.options | ({"mu": 0.0} if method == "pfedme" and mend else {})
    server = build(peer, arguments(method, config, own), setup)
    worker, clients = server.trainer.worker, range(setup.federation.clients)
    assert all(group["lr"] == RATE for group in worker.optimizer.param_groups)
    pieces = 2 if method == "perfedavg" else 1  # which takes two batches a step
    feeds = [Feed(setup, client, pieces) for client in clients]
    worker.trainloader = Shared(worker, feeds)
    last: list[Any] = [None for _ in clients]
    play, train = server.train_one_round, worker.train

    def plan_and_play() -> None:
        plans.begin(feeds, server.current_epoch, peer.deal)
        play()

    def train_and_keep(package: Tree) -> Tree:
        told: Tree = train(package)
        last[worker.client_id] = copy.deepcopy(worker.model)  # pFedMe's θ, which they lose
        if method == "scaffold" and mend:
            server.c_local[worker.client_id] = worker.c_local
        return told

    server.train_one_round, worker.train = plan_and_play, train_and_keep
    server.train()

    def personal(client: int) -> Any:
        worker.set_parameters(server.package(client))
        if method in ("perfedavg", "fedbabu"):
            plans.begin_adapting(feeds[client])
            worker.finetune()
        if method == "apfl":
            mixed = importlib.import_module("src.client.apfl").MixedModel
            return copy.deepcopy(mixed(worker.local_model, worker.model, worker.alpha))
        return copy.deepcopy(getattr(worker, "pers_model", worker.model))

    kept = last if method == "pfedme" else [personal(client) for client in clients]
    return judged(method, server, [] if method in ("fedavg", "scaffold") else kept, setup, mend)


def judged(method: str, server: Any, own: list[Any], setup: Setup, mend: bool) -> Side:
    """Accuracy of their models on the clients' own test rows."""
    common = Decoupled(setup)
    common.load_state_dict(server.public_model_params, strict=False)
    if method == "apfl" and mend:  # ours, made alike, predicts by the own model alone
        own = [model.local_model for model in own]
    found = {"personal": accuracy(own, setup)} if own else {}
    if method != "fedrep":
        found["global"] = accuracy([common] * setup.federation.clients, setup)
    if method == "apfl" and not mend:
        own = []  # a mixture of outputs has no weights
    head = common.classifier if method != "fedrep" else None
    return Side(found, named(common.base, head), [named(m.base, m.classifier) for m in own])
