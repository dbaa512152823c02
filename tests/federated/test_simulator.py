"""The engine against plain torch loops, and against itself in other cohorts."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedpn.algorithms.base import FedAvg
from fedpn.algorithms.ditto import Ditto
from fedpn.algorithms.fedpn import FedPN
from fedpn.core.errors import UserError
from fedpn.core.trees import flatten
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.checkpoint import State
from fedpn.federated.listener import Listener
from fedpn.federated.settings import FaultSettings
from fedpn.federated.training import Train, sample
from fedpn.nn.posterior import parameters
from settings import SIZES, Kept, play, setting, with_inputs, work_of


@dataclass
class Said(Listener):
    """Keeps what is said."""

    texts: list[str] = field(default_factory=list)

    def say(self, text):
        self.texts.append(text)


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
        play(method, setting(method.network), cohort=c, epochs=2) for c in (1, 5, 3)
    )
    for other in (many, three):
        assert_same(one.server, other.server, 1e-10)
        for a, b in ((one.memories[c], other.memories[c]) for c in range(len(SIZES))):
            assert_same(a, b, 1e-10)


def _loop(method, setup, count, **options):
    """FedAvg as people write it: a module and a torch optimiser per client."""
    model, data, rows = setup.model, setup.data, setup.federation.train
    work = work_of(**options)
    shared = {n: p.clone() for n, p in parameters(model.network).items()}
    saved = None
    kept = {}
    for r in range(count):
        uploads, states, weights = [], [], []
        for c in sample(len(rows), work.join, 0, r):
            network = model.network
            network.load_state_dict(shared)
            optimizer = torch.optim.SGD(network.parameters(), method.lr, method.momentum)
            if method.optimizer_state == "average" and saved is not None:
                for p, v in zip(network.parameters(), saved, strict=True):
                    optimizer.state[p]["momentum_buffer"] = v.clone()
            if method.optimizer_state == "keep" and c in kept:
                for p, v in zip(network.parameters(), kept[c], strict=True):
                    optimizer.state[p]["momentum_buffer"] = v.clone()
            for index in Train(method, work, 0).plan(rows[c], int(c), r):
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
    setup = setting(method.network)
    ours = method.shared(play(method, setup, join=join).server)
    theirs = _loop(method, setup, 3, join=join)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-9)


def test_a_client_with_few_rows_idles():
    """Epochs give clients unequal steps: the mean is of each one's own."""
    method = FedAvg(optimizer_state="reset", momentum=0.0)
    setup = setting("classifier")
    model, data, rows = setup.model, setup.data, setup.federation.train
    ours = play(method, setup, count=1, steps=0, epochs=1).server["model"]
    phase = Train(method, work_of(steps=0, epochs=1), 0)
    plans = [phase.plan(rows[c], c, 0) for c in range(5)]
    assert [len(p) for p in plans] == [5, 2, 4, 1, 3]
    total = {}
    for c, plan in enumerate(plans):
        network = model.network
        network.load_state_dict(parameters(setting("classifier").model.network))
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
    faults = FaultSettings(dropout=0.5, patience=9)
    lines = play(FedAvg(), setting("classifier"), faults, count=12, steps=2, epochs=0).lines
    assert len(lines) == 12
    assert 0 < np.mean([len(line["dropped"]) for line in lines]) < 5
    assert all(line["joined"] == 5 for line in lines)
    assert len({tuple(line["dropped"]) for line in lines}) > 3


def test_who_drops_out_leaves_the_mean_of_the_others():
    """The server's model after a round is that of the clients that stayed, by their rows."""
    method, setup = FedAvg(optimizer_state="reset"), setting("classifier")
    faults = FaultSettings(dropout=0.5)
    played = play(method, setup, faults, count=1, steps=2, epochs=0)
    (line,) = played.lines
    there = [c for c in range(5) if c not in line["dropped"]]
    assert 0 < len(there) < 5
    phase, total = Train(method, work_of(steps=2, epochs=0), 0), {}
    for c in there:
        network = setting("classifier").model.network
        optimizer = torch.optim.SGD(network.parameters(), method.lr, method.momentum)
        for index in phase.plan(setup.federation.train[c], c, 0):
            optimizer.zero_grad()
            z = network.embed(setup.data.x[index])
            setup.model.loss(network, z, setup.data.y[index]).backward()
            optimizer.step()
        for name, p in network.state_dict().items():
            total[name] = total.get(name, 0) + p * SIZES[c] / sum(SIZES[i] for i in there)
    for name, p in played.server["model"].items():
        torch.testing.assert_close(p, total[name], rtol=1e-10, atol=1e-10)


def test_a_round_of_none_keeps_the_server_and_too_many_end_the_run():
    setup, method, journal = setting("classifier"), FedAvg(), Kept(None, every=1)
    faults = FaultSettings(dropout=1.0, patience=2)
    with pytest.raises(UserError, match="2 rounds in a row had no valid upload"):
        play(method, setup, faults, count=9, steps=2, epochs=0, journal=journal)
    assert [line["loss"] for line in journal.lines] == [None, None]
    assert [line["dropped"] for line in journal.lines] == [[0, 1, 2, 3, 4]] * 2
    assert [line["norm"] for line in journal.lines] == [0.0, 0.0]
    first = method.init(setup.model.task, setup.fresh)
    for state, rounds in zip(journal.states, (1, 2), strict=True):
        assert (state.round, state.counted) == (rounds, False)
        assert_same(state.server, first, 0)


def test_a_run_of_which_no_round_counted_ends_in_words_however_short():
    faults = FaultSettings(dropout=1.0, patience=9)
    with pytest.raises(UserError, match="2 rounds in a row had no valid upload"):
        play(FedAvg(), setting("classifier"), faults, count=2, steps=2, epochs=0)


def test_uploads_that_are_not_finite_or_too_long_are_refused():
    setup = setting("classifier")
    rows, x = setup.federation.train, setup.data.x.clone()
    x[rows[2]] = torch.nan
    x[rows[4]] *= 1e6
    method, faults = FedAvg(optimizer_state="keep"), FaultSettings(max_norm=50.0)
    heard = Said()
    played = play(method, with_inputs(setup, x), faults, count=2, steps=2, epochs=0, listener=heard)
    assert played.lines[0]["refused"] == played.lines[1]["refused"] == [2, 4]
    assert [text.partition(": ")[0] for text in heard.texts] == ["federate, round 1"] * 2  # once
    assert "client 2 is left out: model/encoder" in heard.texts[0]
    assert "client 4 is left out: its model moved by" in heard.texts[1]
    assert all(t.isfinite().all() for t in flatten(played.server).values())
    assert not any(v.any() for v in played.memories[2]["optimizer"].values())  # as it was
    assert played.memories[0]["optimizer"]["velocity/head.0.weight"].any()


def test_a_personal_model_that_breaks_down_is_noticed_in_its_round():
    """Its upload is sound: only what the client keeps to itself is not."""
    setup, heard = setting("classifier"), Said()
    method = Ditto(tether=1e300)
    with pytest.raises(UserError, match="3 rounds in a row had no valid upload"):
        play(method, setup, count=9, steps=3, epochs=0, listener=heard)
    assert "federate, round 1: client 0 is left out: its own own/encoder" in heard.texts[0]


@dataclass(frozen=True)
class Overshooting(FedAvg):
    """A server that goes far beyond what clients say."""

    def aggregate(self, server, mean, share):
        return {"model": {name: t * 1e300 * 1e300 for name, t in mean["model"].items()}}


def test_a_server_that_breaks_down_is_not_kept(tmp_path):
    setup, journal = setting("classifier"), Kept(tmp_path, every=1)
    first = play(FedAvg(), setup, count=1, journal=journal, path=tmp_path / "memories.bin")
    with pytest.raises(UserError, match=r"round 2 ended .* server's model/.* no longer finite"):
        again = Kept(tmp_path, every=1)
        play(Overshooting(), setup, count=3, journal=again, path=tmp_path / "memories.bin")
    kept = Kept(tmp_path, every=1).load(State({}), lambda kept, about: None)
    assert kept.round == 1
    assert_same(kept.server, first.server, 0)


def test_stragglers_do_some_of_their_steps():
    phase = Train(FedAvg(), work_of(steps=10, epochs=0), 0, stragglers=0.4)
    whole = Train(FedAvg(), work_of(steps=10, epochs=0), 0)
    rows = [np.arange(40) + 40 * c for c in range(50)]
    plans = [phase.plan(mine, c, 0) for c, mine in enumerate(rows)]
    steps = np.array([len(plan) for plan in plans])
    assert 10 < (steps < 10).sum() < 30
    assert steps.min() >= 1
    for c, plan in enumerate(plans):
        assert np.array_equal(plan, whole.plan(rows[c], c, 0)[: len(plan)])


@pytest.mark.parametrize("rule", ["median", "trimmed", "krum", "multikrum"])
def test_robust_rules_shrug_off_an_attacker(rule):
    """One client's rows are absurd: the mean follows, robust rules do not."""
    setup = setting("classifier")
    x = setup.data.x.clone()
    x[setup.federation.train[1]] = 1e4
    moved = {}
    for name in ("mean", rule):
        aggregation = AggregationSettings(rule=name, byzantine=0.2)
        for label, s in (("clean", setup), ("attacked", with_inputs(setup, x))):
            played = play(FedAvg(optimizer_state="reset"), s, None, aggregation, count=1)
            moved[name, label] = torch.cat([t.flatten() for t in played.server["model"].values()])

    def shift(name):
        return (moved[name, "clean"] - moved[name, "attacked"]).norm()

    assert shift("mean") > 20 * shift(rule)


def test_the_private_mean_is_bounded_and_drawn_by_the_seed():
    setup, method = setting("classifier"), FedAvg(optimizer_state="reset")
    first = torch.cat([t.flatten() for t in setup.fresh.values()])

    def move(noise, clip, repeatable=True):
        aggregation = AggregationSettings("private", noise=noise, clip=clip, repeatable=repeatable)
        played = play(method, setup, None, aggregation, count=1)
        return torch.cat([t.flatten() for t in played.server["model"].values()]) - first

    assert move(0.0, 0.01).norm() <= 0.01 + 1e-12
    assert torch.equal(move(1.0, 0.01), move(1.0, 0.01))
    assert not torch.equal(move(1.0, 0.01, False), move(1.0, 0.01, False))
    spread = (move(2.0, 1.0) - move(0.0, 1.0)).std()
    assert spread == pytest.approx(2.0 * 1.0 / 5, rel=0.05)
