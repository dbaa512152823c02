"""The engine against plain torch loops, and against itself in other cohorts."""

import numpy as np
import pytest
import torch

from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.errors import UserError
from fedpn.core.trees import flatten
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.simulator import Engine, begin, plan_round, sample
from fedpn.nn.posterior import parameters
from fedpn.federated.settings import FaultSettings, TrainSettings
from settings import SIZES, play, setting


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
        play(method, *setting(method.network), cohort=c, epochs=2) for c in (1, 5, 3)
    )
    for other in (many, three):
        assert_same(one.server, other.server, 1e-10)
        for a, b in ((one.memories[c], other.memories[c]) for c in range(len(SIZES))):
            assert_same(a, b, 1e-10)


def _loop(method, model, data, rows, count, **options):
    """FedAvg as people write it: a module and a torch optimiser per client."""
    config = TrainSettings(**({"batch": 8, "steps": 0, "epochs": 1} | options))
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
    config = TrainSettings(batch=8, steps=0, epochs=1)
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


def test_dropped_clients_are_named_and_do_not_count():
    model, data, rows = setting("classifier")
    method = FedAvg()
    state = begin(method, model.task, parameters(model.network), [data.y[r] for r in rows])
    work = TrainSettings(batch=8, steps=2)
    engine = Engine(method, model.task, data, rows, 0, work, FaultSettings(dropout=0.5, patience=9))
    records = [record for _, record in engine.rounds(state, 12)]
    assert 0 < np.mean([len(r.dropped) for r in records]) < 5
    assert all(r.joined == 5 for r in records)
    assert len({tuple(r.dropped) for r in records}) > 3


def test_a_round_of_none_keeps_the_server_and_too_many_end_the_run():
    model, data, rows = setting("classifier")
    method = FedAvg()
    state = begin(method, model.task, parameters(model.network), [data.y[r] for r in rows])
    work, faults = TrainSettings(batch=8, steps=2), FaultSettings(dropout=1.0, patience=2)
    engine = Engine(method, model.task, data, rows, 0, work, faults)
    played = engine.rounds(state, 9)
    after, record = next(played)
    assert record.loss is None
    assert record.dropped == [0, 1, 2, 3, 4]
    assert after.server is state.server
    next(played)
    with pytest.raises(UserError, match="2 rounds in a row had no valid upload"):
        next(played)


def test_uploads_that_are_not_finite_or_too_long_are_refused():
    model, data, rows = setting("classifier")
    poisoned = data._replace(x=data.x.clone())
    poisoned.x[rows[2]] = torch.nan
    poisoned.x[rows[4]] *= 1e6
    work = TrainSettings(batch=8, steps=2)
    method = FedAvg(optimizer_state="keep")
    first = begin(method, model.task, parameters(model.network), [data.y[r] for r in rows])
    engine = Engine(method, model.task, poisoned, rows, 0, work, FaultSettings(max_norm=50.0))
    state, record = next(engine.rounds(first, 1))
    assert record.refused == [2, 4]
    assert all(t.isfinite().all() for t in flatten(state.server).values())
    assert not any(v.any() for v in state.memories[2]["optimizer"].values())  # as it was
    assert state.memories[0]["optimizer"]["velocity/head.0.weight"].any()


def test_stragglers_do_some_of_their_steps():
    rows = tuple(np.arange(40) + 40 * c for c in range(50))
    work = TrainSettings(batch=8, steps=10)
    plan = plan_round(rows, np.arange(50), work, 0, 0, stragglers=0.4)
    steps = (plan.rows[:, :, 0] >= 0).sum(1)
    assert 10 < (steps < 10).sum() < 30
    assert steps.min() >= 1


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "multikrum"])
def test_robust_rules_shrug_off_an_attacker(rule):
    """One client's rows are absurd: the mean follows, robust rules do not."""
    model, data, rows = setting("classifier")
    attacked = data._replace(x=data.x.clone())
    attacked.x[rows[1]] = 1e4
    moved = {}
    for name in ("mean", rule):
        aggregation = AggregationSettings(rule=name, byzantine=0.2)
        for label, d in (("clean", data), ("attacked", attacked)):
            state = play(
                FedAvg(optimizer_state="reset"),
                model,
                d,
                rows,
                FaultSettings(),
                aggregation,
                count=1,
            )
            moved[name, label] = torch.cat([t.flatten() for t in state.server["model"].values()])

    def shift(name):
        return (moved[name, "clean"] - moved[name, "attacked"]).norm()

    assert shift("mean") > 20 * shift(rule)


def test_the_private_mean_is_bounded_and_drawn_by_the_seed():
    model, data, rows = setting("classifier")
    method = FedAvg(optimizer_state="reset")
    first = torch.cat([t.flatten() for t in parameters(model.network).values()])

    def move(noise, clip):
        aggregation = AggregationSettings(rule="private", noise=noise, clip=clip)
        state = play(method, model, data, rows, FaultSettings(), aggregation, count=1)
        return torch.cat([t.flatten() for t in state.server["model"].values()]) - first

    assert move(0.0, 0.01).norm() <= 0.01 + 1e-12
    assert torch.equal(move(1.0, 0.01), move(1.0, 0.01))
    spread = (move(2.0, 1.0) - move(0.0, 1.0)).std()
    assert spread == pytest.approx(2.0 * 1.0 / 5, rel=0.05)
