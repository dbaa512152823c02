"""Drives the servers and clients of a clone of PFLlib with our rows, weights and batches.

They run as they are in the checkout; only what they read and write is replaced: the loader of a
client hands out the batches of our plan, evaluation and saving are left out, and its helpers for
data, attacks and privacy (`utils`, `h5py`) are not needed.
"""

import argparse
import contextlib
import copy
import importlib
import io
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

from peers_common import Feed, Side, accuracy, halves, named, plans_of
from peers_methods import METHODS, RATE, Peer, Tree
from torch import Tensor, nn

from fedpn.federated.site import Setup
from fedpn.runs.config import Config


class Halved(nn.Module):
    """Our network as PFLlib wants one."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.base, self.head = halves(setup)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.base(x))
        return logits


def stand_in(checkout: Path, setup: Setup) -> None:
    """Modules that PFLlib imports and that are not compared: its readers, attacks and privacy."""

    def read_client_data(dataset: str, client: int, is_train: bool = True) -> Any:
        return (setup.federation.train if is_train else setup.federation.test)[client]

    wanted: Tree = {"utils": {"__path__": []}, "utils.privacy": {}, "h5py": {}}
    wanted |= {"utils.data_utils": {"read_client_data": read_client_data}}
    wanted |= {"utils.dlg": {"DLG": None}}
    for name, entries in wanted.items():
        sys.modules[name] = module = types.ModuleType(name)
        vars(module).update(entries)
    for base in ("flcore.servers.serverbase", "flcore.clients.clientbase"):
        if base in sys.modules:  # from another comparison, of other rows
            vars(sys.modules[base])["read_client_data"] = read_client_data
    if (system := str(checkout / "system")) not in sys.path:
        sys.path.insert(0, system)


def arguments(method: str, config: Config, setup: Setup, own: Tree) -> argparse.Namespace:
    """PFLlib's options: its own defaults where nothing is compared."""
    budget = {"global_rounds": config.rounds - 1, "local_epochs": 1, "join_ratio": 1.0}
    sizes = {"num_clients": setup.federation.clients, "num_classes": len(setup.dataset.classes)}
    half = method == "perfedavg"  # which takes two batches a step
    sizes |= {"batch_size": config.train.batch // (2 if half else 1)}
    rates = {"local_learning_rate": RATE, "server_learning_rate": 1.0, "learning_rate_decay": False}
    rates |= {"learning_rate_decay_gamma": 1.0, "momentum": 0.0}
    off = ["random_join_ratio", "time_select", "auto_break", "client_drop_rate", "train_slow_rate"]
    off += ("send_slow_rate", "dlg_eval", "num_new_clients", "fine_tuning_epoch_new", "privacy")
    rest: Tree = {"dlg_gap": 1, "batch_num_per_client": 1, "dp_sigma": 0.0, "top_cnt": 100}
    rest |= {"eval_gap": 1, "time_threthold": 1e9, "goal": "test", "save_folder_name": "none"}
    about = {"algorithm": method, "dataset": setup.dataset.name, "device": "cpu"}
    model = {"model": Halved(setup)}
    return argparse.Namespace(
        **dict.fromkeys(off, 0), **budget, **sizes, **rates, **rest, **about, **model, **own
    )


def build(peer: Peer, options: argparse.Namespace, feeds: list[Feed]) -> Any:
    """Their server and clients, fed with our batches, quiet about the rest."""
    module = importlib.import_module(f"flcore.servers.server{peer.module}")
    server = getattr(module, peer.name)(options, 0)
    for client, feed in zip(server.clients, feeds, strict=True):
        client.load_train_data = lambda batch_size=None, feed=feed: feed
    for name in ("evaluate", "evaluate_personalized", "evaluate_one_step"):
        setattr(server, name, lambda: None)
    for name in ("save_results", "save_global_model"):
        setattr(server, name, lambda: None)
    server.rs_test_acc, server.rs_test_acc_per = [0.0], [0.0]
    return server


def play_theirs(checkout: Path, method: str, config: Config, setup: Setup, mend: bool) -> Side:
    """Lets their server train, then their clients personalise as their servers have it."""
    stand_in(checkout, setup)
    peer, plans = METHODS[method].pfllib, plans_of(config)
    feeds = [Feed(setup, client) for client in range(setup.federation.clients)]
    with contextlib.redirect_stdout(io.StringIO()):
        server = build(peer, arguments(method, config, setup, peer.options), feeds)
    count, send = iter(range(config.rounds)), server.send_models
    last = [copy.deepcopy(client.model) for client in server.clients]

    def send_and_plan() -> None:
        send()
        plans.begin(feeds, next(count), peer.deal)

    def before_adapting(place: int, tune: Any) -> None:
        server.clients[place].set_parameters(server.global_model)
        plans.begin_adapting(feeds[place])
        tune()

    def keep(place: int, update: Any, model: nn.Module, new: Any) -> None:
        last[place] = copy.deepcopy(model)  # pFedMe's θ, which they overwrite by w
        update(model, new)

    server.send_models = send_and_plan
    for place, client in enumerate(server.clients):
        client.update_parameters = partial(keep, place, client.update_parameters)
        if method == "fedbabu":
            client.fine_tune = partial(before_adapting, place, client.fine_tune)
        if method == "pfedme" and mend:
            client.optimizer.param_groups[0]["mu"] = 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        server.train()
    if method == "perfedavg":
        for place, client in enumerate(server.clients):
            before_adapting(place, client.train_one_step)
    if method == "fedrep":
        send()
    return judged(method, server, last, setup)


def judged(method: str, server: Any, last: list[Any], setup: Setup) -> Side:
    """Accuracy of their models on the clients' own test rows."""
    found = {}
    own = [getattr(client, "model_per", client.model) for client in server.clients]
    own = last if method == "pfedme" else own
    if method in ("fedavg", "scaffold"):
        own = []
    if own:
        found["personal"] = accuracy(own, setup)
    common = server.global_model
    if method in ("fedrep", "fedbabu"):  # whose server has a base alone
        whole = Halved(setup)  # FedBABU's head is the first one, and stays
        whole.base = common
        common = whole
    if method != "fedrep":
        found["global"] = accuracy([common] * len(server.clients), setup)
    head = common.head if method != "fedrep" else None
    return Side(found, named(common.base, head), [named(m.base, m.head) for m in own])
