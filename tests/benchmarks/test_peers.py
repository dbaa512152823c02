"""The comparison with other libraries: small ones that stand for them, and what is kept."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from fedpn.core import store

ROOT = Path(__file__).parents[2]
KEPT = store.read_json(ROOT / "results" / "peers.json")
SMALL = {"dataset": "digits", "clients": 3, "rounds": 2, "train.steps": 2, "train.batch": 8}
THEIRS = ("flcore", "utils", "h5py", "src", "data", "ray", "hydra", "omegaconf", "torchvision")
ROUNDING = 1e-12

# FedAvg in the form of PFLlib: a server that holds clients, each with a model and a loader.
PFLLIB = """
import copy

import torch


class Client:
    def __init__(self, args, rows):
        self.model, self.rows, self.rate = copy.deepcopy(args.model), rows, args.local_learning_rate

    def update_parameters(self, model, new):
        pass

    def train(self):
        for x, y in self.load_train_data():
            self.model.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            with torch.no_grad():
                for p in self.model.parameters():
                    p -= self.rate * p.grad


class FedAvg:
    def __init__(self, args, times):
        from utils.data_utils import read_client_data

        sizes = [len(read_client_data(args.dataset, k)) for k in range(args.num_clients)]
        self.clients = [Client(args, size) for size in sizes]
        self.global_model, self.rounds = copy.deepcopy(args.model), args.global_rounds + 1

    def send_models(self):
        for client in self.clients:
            client.model.load_state_dict(self.global_model.state_dict())

    def train(self):
        for _ in range(self.rounds):
            self.send_models()
            for client in self.clients:
                client.train()
            weights = [WEIGHT for client in self.clients]
            models = [list(client.model.parameters()) for client in self.clients]
            with torch.no_grad():
                for p, *all_ in zip(self.global_model.parameters(), *models):
                    p.copy_(sum(w * q for w, q in zip(weights, all_)) / sum(weights))
"""

# FedAvg in the form of FL-bench: a server whose trainer has one worker for all clients.
FLBENCH = """
import pickle
from types import SimpleNamespace

import torch

from src.utils.constants import FLBENCH_ROOT
from src.utils.models import MODELS


class Worker:
    def __init__(self, model, lr):
        self.model, self.optimizer = model, torch.optim.SGD(model.parameters(), lr)

    def set_parameters(self, package):
        self.client_id = package["client_id"]
        self.model.load_state_dict(package["regular_model_params"], strict=False)

    def train(self, package):
        self.set_parameters(package)
        for x, y in self.trainloader:
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
        return {n: p.detach().clone() for n, p in self.model.named_parameters()}


class FedAvgServer:
    def __init__(self, args):
        path = FLBENCH_ROOT / "data" / args.dataset.name / "partition.pkl"
        self.rows = [c["train"] for c in pickle.loads(path.read_bytes())["data_indices"]]
        model = MODELS[args.model.name](dataset=None, pretrained=False)
        worker = Worker(model, args.optimizer.lr)
        self.trainer = SimpleNamespace(worker=worker)
        self.public_model_params = {n: p.detach().clone() for n, p in model.named_parameters()}

    def package(self, client):
        return {"client_id": client, "regular_model_params": self.public_model_params}

    def train_one_round(self):
        told = [self.trainer.worker.train(self.package(k)) for k in range(len(self.rows))]
        weights = [WEIGHT for rows in self.rows]
        self.public_model_params = {
            n: sum(w * one[n] for w, one in zip(weights, told)) / sum(weights) for n in told[0]
        }

    def train(self):
        for self.current_epoch in self.train_progress_bar:
            self.train_one_round()
"""
FILES = {
    "pfllib": ("system/flcore/servers/serveravg.py", PFLLIB, "client.rows"),
    "flbench": ("src/server/fedavg.py", FLBENCH, "len(rows)"),
}


@pytest.fixture
def peers(monkeypatch):
    """The benchmark, which is a script beside its parts; what it imports is forgotten after."""

    def passing(name):
        return name.split(".")[0] in THEIRS or name.startswith("peers")

    before = {name: module for name, module in sys.modules.items() if passing(name)}
    for name in before:
        del sys.modules[name]
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    yield import_module("peers")
    for name in [name for name in sys.modules if passing(name)]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def told(peers, tmp_path):
    """Compares FedAvg with a library that stands for another; `weight` is in its mean."""

    def compare(name, weight=""):
        path, text, by_rows = FILES[name]
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text.replace("WEIGHT", weight or by_rows), encoding="utf-8")
        play, peer = peers.DRIVERS[name], getattr(peers.METHODS["fedavg"], name)
        if weight:
            peer = peers.replace(peer, differs="weighs clients evenly", even=True)
        return peers.exact("fedavg", SMALL, play, tmp_path, peer)

    return compare


@pytest.mark.parametrize("name", FILES)
def test_the_same_code_comes_to_the_same_weights(told, name):
    assert told(name)["exact"]["global"] < ROUNDING


@pytest.mark.parametrize("name", FILES)
def test_a_difference_is_seen_and_can_be_taken_away(told, name):
    found = told(name, weight="1")
    assert found["exact"]["global"] > 1e-6
    assert found["without"]["global"] < ROUNDING


def test_what_is_kept_has_every_method_on_every_side(peers):
    assert KEPT["methods"].keys() == peers.METHODS.keys()
    for method, found in KEPT["methods"].items():
        assert found.keys() == {"ours", *peers.DRIVERS}, method


@pytest.mark.parametrize("method", KEPT["methods"])
@pytest.mark.parametrize("name", FILES)
def test_every_difference_of_weights_is_rounding_or_has_a_cause(name, method):
    found = KEPT["methods"][method][name]
    explained = found["without"] if found["differs"] else found["exact"]
    assert max(explained.values()) < ROUNDING
    if found["differs"]:
        assert max(found["exact"].values()) > ROUNDING


def test_who_is_far_from_ours_is_who_the_docs_name(peers):
    gaps = import_module("peers_table").gaps(KEPT)
    far = {pair for pair, points in gaps.items() if points > 1.2}
    assert far == {("scaffold", "pfllib"), ("scaffold", "flbench"), ("apfl", "flbench")}


def test_the_docs_show_the_tables(peers):
    tables = import_module("peers_table")
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    assert tables.table(KEPT) in page
    assert tables.reasons(KEPT) in page
    assert tables.doubles(KEPT) in page
