"""Do our methods learn what PFLlib's own classes learn, from the same rows, weights and batches?

    git clone https://github.com/TsingZ0/PFLlib
    python benchmarks/peers.py PFLlib [--methods fedavg,ditto] [--rounds 30] [--out peers.json]

Both sides train by plain SGD. PFLlib's servers and clients run as they are in the checkout; only
what they read and write is replaced: the loader of a client hands out the batches of our plan,
evaluation and saving are left out, and its helpers for data, attacks and privacy (`utils`, `h5py`)
are not needed. For each method the file has accuracy of own rows, ours and theirs, of the personal
and the global model, and the largest difference between two weights of the global model. Where
that is not rounding alone, `differs` says why.
"""

import argparse
import contextlib
import copy
import importlib
import io
import sys
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peers_methods import PEERS, RATE, WHOLE
from torch import Tensor, nn

from fedpn.core import store
from fedpn.core.settings import nest
from fedpn.federated.checkpoint import Journal
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt
from fedpn.federated.site import Setup
from fedpn.federated.training import Train
from fedpn.runs.config import Config, resolve
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import judge, play, simulate
from fedpn.runs.prepare import prepare

Tree = dict[str, Any]


class Halved(nn.Module):
    """Our network as PFLlib wants one: a base and a head."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        network = copy.deepcopy(setup.model.network)
        network.load_state_dict(setup.fresh, strict=False)
        self.base = nn.Sequential(network.normalise, network.encoder)
        self.head = network.head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.base(x))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters by our names, of a whole model or of a base alone."""
    base, head = getattr(model, "base", model), getattr(model, "head", nn.Identity())
    named = {f"encoder.{name}": p for name, p in base[1].named_parameters()}
    return named | {f"head.{name}": p for name, p in head.named_parameters()}


class Feed:
    """A client's loader: each pass takes its part of the batches that our plan has."""

    def __init__(self, setup: Setup, client: int) -> None:
        self.data, self.rows, self.client = setup.data, setup.federation.train[client], client
        self.plan, self.deal, self.passed = torch.empty(0), WHOLE, 0

    def begin(self, plan: Any, deal: tuple[float, ...]) -> None:
        self.plan, self.deal, self.passed = torch.from_numpy(plan), deal, 0

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Any:
        part = self.passed % (len(self.deal) - 1)
        self.passed += 1
        first, last = (round(len(self) * share) for share in self.deal[part : part + 2])
        return iter([(self.data.x[rows], self.data.y[rows]) for rows in self.plan[first:last]])


@dataclass
class Side:
    """What one side came to: accuracy on own rows by model, and the global weights."""

    accuracy: dict[str, float]
    weights: dict[str, Tensor]


def play_ours(config: Config, setup: Setup) -> Side:
    simulator = simulate(config, setup)
    found = play(config, simulator, Journal(None), Listener())
    views = [found.records[client]["evaluate"] for client in range(simulator.clients)]
    told = judge(config, setup, views)["accuracy"]
    if config.headline == "global":
        del told["personal"]  # which is the global model's
    return Side({who: row["ind"] for who, row in told.items()}, found.server["model"])


def stand_in(setup: Setup) -> None:
    """Modules that PFLlib imports and that are not compared: its readers, attacks and privacy."""

    def read_client_data(dataset: str, client: int, is_train: bool = True) -> Any:
        return (setup.federation.train if is_train else setup.federation.test)[client]

    wanted: Tree = {"utils": {"__path__": []}, "utils.privacy": {}, "h5py": {}}
    wanted |= {"utils.data_utils": {"read_client_data": read_client_data}}
    wanted |= {"utils.dlg": {"DLG": None}}
    for name, entries in wanted.items():
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(entries)


def arguments(config: Config, setup: Setup, method: str, own: Tree) -> argparse.Namespace:
    """PFLlib's options: its own defaults where nothing is compared."""
    budget = {"global_rounds": config.rounds - 1, "local_epochs": 1, "join_ratio": 1.0}
    sizes = {"num_clients": setup.federation.clients, "num_classes": len(setup.dataset.classes)}
    half = method == "perfedavg"  # which takes two batches a step
    sizes |= {"batch_size": config.train.batch // (2 if half else 1)}
    rates = {"local_learning_rate": RATE, "server_learning_rate": 1.0, "learning_rate_decay": False}
    rates |= {"learning_rate_decay_gamma": 1.0, "momentum": 0.0}
    off = ("random_join_ratio", "time_select", "auto_break", "client_drop_rate", "train_slow_rate")
    off += ("send_slow_rate", "dlg_eval", "num_new_clients", "fine_tuning_epoch_new", "privacy")
    rest = {"dlg_gap": 1, "batch_num_per_client": 1, "dp_sigma": 0.0, "top_cnt": 100}
    rest |= {"eval_gap": 1, "time_threthold": 1e9, "goal": "test", "save_folder_name": "none"}
    named = {"algorithm": method, "dataset": setup.dataset.name, "device": "cpu"}
    model = {"model": Halved(setup)}
    return argparse.Namespace(
        **dict.fromkeys(off, 0), **budget, **sizes, **rates, **rest, **named, **model, **own
    )


def build_theirs(method: str, config: Config, setup: Setup) -> tuple[Any, list[Feed]]:
    """Their server and clients, fed with our batches, quiet about the rest."""
    peer = PEERS[method]
    module = importlib.import_module(f"flcore.servers.server{peer.module}")
    options = arguments(config, setup, method, peer.theirs)
    with contextlib.redirect_stdout(io.StringIO()):
        server = getattr(module, peer.name)(options, 0)
    feeds = [Feed(setup, client) for client in range(server.num_clients)]
    for client, feed in zip(server.clients, feeds, strict=True):
        client.load_train_data = lambda batch_size=None, feed=feed: feed
    for name in ("evaluate", "evaluate_personalized", "evaluate_one_step"):
        setattr(server, name, lambda: None)
    for name in ("save_results", "save_global_model"):
        setattr(server, name, lambda: None)
    server.rs_test_acc, server.rs_test_acc_per = [0.0], [0.0]
    return server, feeds


def play_theirs(method: str, config: Config, setup: Setup) -> Side:
    """Lets their server train, then their clients personalise as their servers have it."""
    server, feeds = build_theirs(method, config, setup)
    phases = phases_of(config)
    rounds = next(phase for phase in phases if isinstance(phase, Train))
    adapt = next(phase for phase in phases if isinstance(phase, Adapt))
    count, send = iter(range(config.rounds)), server.send_models
    last = [copy.deepcopy(client.model) for client in server.clients]

    def send_and_plan() -> None:
        send()
        number = next(count)
        for feed in feeds:
            feed.begin(rounds.plan(feed.rows, feed.client, number), PEERS[method].deal)

    def before_adapting(place: int, tune: Any) -> None:
        server.clients[place].set_parameters(server.global_model)
        feeds[place].begin(adapt.plan(feeds[place].rows, place), WHOLE)
        tune()

    def keep(place: int, update: Any, model: nn.Module, new: Any) -> None:
        last[place] = copy.deepcopy(model)  # pFedMe's θ, which they overwrite by w
        update(model, new)

    server.send_models = send_and_plan
    for place, client in enumerate(server.clients):
        client.update_parameters = partial(keep, place, client.update_parameters)
        if method == "fedbabu":
            client.fine_tune = partial(before_adapting, place, client.fine_tune)
    with contextlib.redirect_stdout(io.StringIO()):
        server.train()
    if method == "perfedavg":
        for place, client in enumerate(server.clients):
            before_adapting(place, client.train_one_step)
    if method == "fedrep":
        send()
    return judged(method, server, last, setup)


def judged(method: str, server: Any, last: list[nn.Module], setup: Setup) -> Side:
    """Accuracy of their models on the clients' own test rows."""
    clients, config = server.clients, {"pfedme": last}
    own = config.get(method) or [getattr(c, "model_per", c.model) for c in clients]
    whole = [server.global_model] * len(clients)
    if method == "fedbabu":  # its head is the first one, and stays
        first = Halved(setup)
        first.base = server.global_model
        whole = [first] * len(clients)
    sides = {"personal": own, "global": whole}
    if method in ("fedavg", "scaffold"):
        del sides["personal"]
    if method == "fedrep":
        del sides["global"]
    found = {who: accuracy(models, setup) for who, models in sides.items()}
    return Side(found, weights(server.global_model))


@torch.no_grad()
def accuracy(models: list[nn.Module], setup: Setup) -> float:
    """The clients' mean accuracy on their own test rows."""
    shares = []
    for client, model in enumerate(models):
        rows = torch.from_numpy(setup.federation.ind(client))
        hit = model.eval()(setup.data.x[rows]).argmax(-1) == setup.data.y[rows]
        shares.append(float(hit.double().mean()))
    return sum(shares) / len(shares)


def compare(method: str, budget: Tree) -> Tree:
    """One method on both sides."""
    ours = {f"method.{key}": value for key, value in PEERS[method].ours.items()}
    plain = {"method.lr": RATE, "method.momentum": 0.0, "routing.strangers": 0.0}
    config = resolve([{"algorithm": method}, nest(budget | plain | ours)])
    setup = prepare(config)
    stand_in(setup)
    mine, theirs = play_ours(config, setup), play_theirs(method, config, setup)
    apart = max(
        float((mine.weights[n] - p.detach()).abs().max()) for n, p in theirs.weights.items()
    )
    both = {
        who: {"ours": round(share, 5), "theirs": round(theirs.accuracy[who], 5)}
        for who, share in mine.accuracy.items()
    }
    return both | {"weights_apart": apart, "differs": PEERS[method].differs}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("checkout", type=Path, help="a clone of TsingZ0/PFLlib")
    options.add_argument("--methods", default=",".join(PEERS))
    options.add_argument("--dataset", default="mnist")
    for name, usual in {"clients": 20, "rounds": 30, "steps": 10, "batch": 64, "rows": 0}.items():
        options.add_argument(f"--{name}", type=int, default=usual)
    options.add_argument("--out", type=Path, default=Path("results/peers.json"))
    asked = options.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(asked.checkout / "system"))
    budget = {"dataset": asked.dataset, "clients": asked.clients, "rounds": asked.rounds}
    budget |= {"train.steps": asked.steps, "train.batch": asked.batch, "data.limit": asked.rows}
    results: Tree = {"format": 1, "about": budget | {"rate": RATE, "seed": 0}, "methods": {}}
    if asked.out.exists() and store.read_json(asked.out)["about"] == results["about"]:
        results = store.read_json(asked.out)
    for method in asked.methods.split(","):
        if method not in results["methods"]:
            results["methods"][method] = found = compare(method, budget)
            store.write_json(asked.out, results)
            print(method, found, flush=True)


if __name__ == "__main__":
    main()
