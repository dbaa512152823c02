"""The engine against plain torch loops, and against itself in other cohorts."""

import numpy as np
import pytest
import torch

from fedpn.algorithm import Data, FedAvg
from fedpn.algorithms.fedpn import FedPN
from fedpn.config import TrainConfig
from fedpn.nn.build import Blueprint, build_model
from fedpn.nn.posterior import parameters
from fedpn.nn.task import make_model
from fedpn.simulate import begin, plan_round, rounds, sample
from fedpn.trees import flatten

SIZES = (40, 9, 25, 3, 17)  # unequal, and less than a batch


def setting(kind, **loss):
    """Five clients of unequal size, in float64."""
    torch.manual_seed(0)
    mean, std = [0.1, 0.2, 0.3], [1.0, 2.0, 0.5]
    b = Blueprint(kind, (3,), 4, "mlp", 5, "radial", 3, mean, std)
    model = build_model(b, 0, {"name": "repaired", "gamma": 0.05} | loss)
    model = make_model(model.network.double(), model.loss)
    data = Data(torch.randn(sum(SIZES), 3).double(), torch.randint(0, 4, (sum(SIZES),)))
    rows = tuple(np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1]))
    return model, data, rows


def play(algorithm, model, data, rows, count=3, **options):
    params = parameters(model.network)
    state = begin(algorithm, model.task, params, [data.y[r] for r in rows])
    config = TrainConfig(**({"batch": 8, "steps": 4} | options))
    *_, (last, _) = rounds(algorithm, model.task, data, rows, state, count, 0, config)
    return last


def assert_same(a, b, tolerance):
    a, b = flatten(a), flatten(b)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("state", ["average", "reset", "keep"])
@pytest.mark.parametrize("algorithm", [FedAvg, FedPN])
def test_cohorts_agree(algorithm, state):
    method = algorithm(optimizer_state=state)
    one, many, three = (
        play(method, *setting(method.network), cohort=c, steps=0, epochs=2) for c in (1, 5, 3)
    )
    for other in (many, three):
        assert_same(one.server, other.server, 1e-10)
        for a, b in zip(one.memories, other.memories, strict=True):
            assert_same(a, b, 1e-10)


def _loop(method, model, data, rows, count, **options):
    """FedAvg as people write it: a module and a torch optimiser per client."""
    config = TrainConfig(**({"batch": 8, "steps": 4} | options))
    shared = {n: p.clone() for n, p in parameters(model.network).items()}
    saved = None
    kept = {}
    for r in range(count):
        uploads, states, weights = [], [], []
        for c in sample(len(rows), config.join, 0, r):
            network = model.network
            network.load_state_dict(shared)
            optimizer = torch.optim.SGD(network.parameters(), method.lr, method.momentum)
            if method.optimizer_state == "average" and saved is not None:
                for p, v in zip(network.parameters(), saved, strict=True):
                    optimizer.state[p]["momentum_buffer"] = v.clone()
            if method.optimizer_state == "keep" and c in kept:
                for p, v in zip(network.parameters(), kept[c], strict=True):
                    optimizer.state[p]["momentum_buffer"] = v.clone()
            plan = plan_round(rows, np.array([c]), config, 0, r).rows[0]
            for index in plan:
                optimizer.zero_grad()
                model.loss(network, network.embed(data.x[index]), data.y[index]).backward()
                optimizer.step()
            uploads.append({n: p.clone() for n, p in network.state_dict().items()})
            buffers = [optimizer.state[p]["momentum_buffer"] for p in network.parameters()]
            states.append(buffers)
            kept[c] = buffers
            weights.append(len(rows[c]))
        share = np.array(weights) / sum(weights)
        shared = {n: sum(w * u[n] for w, u in zip(share, uploads, strict=True)) for n in shared}
        saved = [
            sum(w * b for w, b in zip(share, bs, strict=True)) for bs in zip(*states, strict=True)
        ]
    return shared


@pytest.mark.parametrize("join", [1.0, 0.6])
@pytest.mark.parametrize("state", ["average", "reset", "keep"])
@pytest.mark.parametrize("algorithm", [FedAvg, FedPN])
def test_rounds_agree_with_plain_loops(algorithm, state, join):
    method = algorithm(optimizer_state=state)
    model, data, rows = setting(method.network)
    ours = method.shared(play(method, model, data, rows, join=join).server)
    theirs = _loop(method, model, data, rows, 3, join=join)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-9)


def test_a_client_with_few_rows_idles():
    """Epochs give clients unequal steps: the mean is of each one's own."""
    method = FedAvg(optimizer_state="reset", momentum=0.0)
    model, data, rows = setting("classifier")
    ours = play(method, model, data, rows, count=1, steps=0, epochs=1).server["model"]
    config = TrainConfig(batch=8, steps=0, epochs=1)
    plans = [plan_round(rows, np.array([c]), config, 0, 0).rows[0] for c in range(5)]
    assert [len(p) for p in plans] == [5, 2, 4, 1, 3]
    total = {}
    for c, plan in enumerate(plans):
        network = model.network
        network.load_state_dict(parameters(setting("classifier")[0].network))
        optimizer = torch.optim.SGD(network.parameters(), method.lr)
        for index in plan:
            optimizer.zero_grad()
            model.loss(network, network.embed(data.x[index]), data.y[index]).backward()
            optimizer.step()
        for name, p in network.state_dict().items():
            total[name] = total.get(name, 0) + p * SIZES[c] / sum(SIZES)
    for name in ours:
        torch.testing.assert_close(ours[name], total[name], rtol=1e-10, atol=1e-10)


def test_who_joins_depends_on_seed_and_round_alone():
    assert sample(20, 0.25, 0, 1).tolist() == sample(20, 0.25, 0, 1).tolist()
    assert sample(20, 0.25, 0, 1).tolist() != sample(20, 0.25, 0, 2).tolist()
    assert len(sample(20, 0.25, 0, 1)) == 5
    assert len(sample(20, 0.001, 0, 1)) == 1
