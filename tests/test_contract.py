"""What every algorithm must do, and that each does what its paper says."""

import copy
from dataclasses import fields, replace

import pytest
import torch

from fedpn.algorithms import ALGORITHMS
from fedpn.algorithms.apfl import APFL
from fedpn.algorithms.base import FedAvg, batches
from fedpn.algorithms.ditto import Ditto
from fedpn.algorithms.fedavgm import FedAvgM
from fedpn.algorithms.fedbabu import FedBABU
from fedpn.algorithms.fedbn import FedBN
from fedpn.algorithms.fedper import FedPer
from fedpn.algorithms.fedpn import FedPN
from fedpn.algorithms.fedprox import FedProx
from fedpn.algorithms.fedrep import FedRep
from fedpn.algorithms.fedrod import FedRoD
from fedpn.algorithms.local import Local
from fedpn.algorithms.perfedavg import PerFedAvg
from fedpn.algorithms.pfedme import PFedMe
from fedpn.algorithms.scaffold import Scaffold
from fedpn.core.errors import UserError
from fedpn.core.trees import flatten, public
from fedpn.data.batches import stack_plans
from fedpn.federated.checkpoint import State
from fedpn.federated.listener import Listener
from fedpn.federated.personal import Adapt
from fedpn.federated.simulator import Simulator
from fedpn.federated.site import Site
from fedpn.federated.training import Train, sample
from fedpn.nn.posterior import parameters
from fedpn.runs.config import resolve
from oracles import ORACLES, Outcome, Setting
from settings import SIZES, Kept, play, setting, work_of

# What learns by rounds; the head in closed form has its own oracle in federated/test_ridge.py.
TRAINED = {name: algorithm for name, algorithm in ALGORITHMS.items() if algorithm.trains}
# Large rates: a mistake shall show after three rounds.
EXTRA = {
    "fedpn": {"adapt_epochs": 2, "adapt_steps": 3, "adapt_lr": 0.01},
    "fedrep": {"head_share": 0.4},
    "fedbabu": {"adapt_epochs": 2, "adapt_lr": 0.05},
    "perfedavg": {"inner_lr": 0.01},
    "apfl": {"alpha_lr": 0.1},
    "fedprox": {"mu": 0.5},
    "pfedme": {"inner_steps": 3, "inner_lr": 0.02, "mix": 0.7},
}
VARIANTS = [
    *(pytest.param(name, {}, id=name) for name in TRAINED),
    pytest.param("fedavg", {"optimizer_state": "keep"}, id="fedavg-keep"),
    pytest.param("fedper", {"optimizer_state": "keep"}, id="fedper-keep"),
    pytest.param("ditto", {"optimizer_state": "reset"}, id="ditto-reset"),
    pytest.param("fedrep", {"optimizer": "adam"}, id="fedrep-adam"),
    pytest.param("fedper", {"weight_decay": 0.1}, id="fedper-decay"),
    pytest.param("fedbabu", {"part": "all"}, id="fedbabu-all"),
    pytest.param("perfedavg", {"mode": "first-order", "inner_lr": 0.1}, id="perfedavg-first-order"),
]


def make(name, **options):
    return ALGORITHMS[name](**({"lr": 0.05} | EXTRA.get(name, {}) | options))


def outcome(method, setup, join=1.0, cohort=5, batch=8):
    """Rounds and the personal stage, as the pipeline plays them."""
    played = play(method, setup, join=join, cohort=cohort, batch=batch)
    played.simulator.visit([Adapt(method, batch, 0)], played.server, Listener())
    shared, members = method.shared(played.server), played.simulator.members
    assert all(members[c].keys() == {"own"} for c in range(len(SIZES)))
    return Outcome(shared, [(shared or {}) | members[c]["own"] for c in range(len(SIZES))])


def reference(name, method, setup, join=1.0, batch=8):
    """The same by the oracle, on the same first weights and batches."""
    model, data, rows = setup.model, setup.data, setup.federation.train
    phase, personal = Train(method, work_of(batch=batch, join=join), 0), Adapt(method, batch, 0)
    plans = [
        [torch.from_numpy(phase.plan(mine, c, r)) for c, mine in enumerate(rows)] for r in range(3)
    ]
    joined = [sample(len(rows), join, 0, r).tolist() for r in range(3)]
    s = Setting(
        network=model.network,
        loss=model.loss,
        x=data.x,
        y=data.y,
        rows=list(rows),
        plans=plans,
        joined=joined,
        adapt_plans=[torch.from_numpy(personal.plan(mine, c)) for c, mine in enumerate(rows)],
        head=model.task.head_names,
        norm=model.task.norm_names,
    )
    if name == "fedpn":
        return _fedpn(s, method)
    found = ORACLES[name](s, method)
    return _without_prior(found) if name == "fedrod" else found


def _without_prior(found):
    """FedRoD's oracle counts classes in its loss, and leaves the network's own prior alone."""
    kept = [{n: t for n, t in state.items() if n != "prior"} for state in found.personal]
    return Outcome({n: t for n, t in found.shared.items() if n != "prior"}, kept)


def _fedpn(s, h):
    """FedAvg on eq. 8; then a fresh head and density on the frozen encoder, by Adam."""
    shared = ORACLES["fedavg"](s, h).shared
    even = s.network.prior.clone()
    personal = []
    for client, plan in enumerate(s.adapt_plans):
        fresh = parameters(s.network)
        counts = torch.bincount(s.y[s.rows[client]], minlength=len(even))
        mine = {n: shared[n] if n.startswith("encoder.") else t for n, t in fresh.items()}
        mine["prior"] = counts / counts.sum().double()
        network = copy.deepcopy(s.network)
        network.load_state_dict(mine)
        moving = [p for n, p in network.named_parameters() if not n.startswith("encoder.")]
        optimizer = torch.optim.Adam(moving, h.adapt_lr)
        for index in plan:
            optimizer.zero_grad()
            s.loss(network, network.embed(s.x[index]), s.y[index]).backward()
            optimizer.step()
        personal.append(parameters(network))
    return Outcome(shared, personal)


def setting_of(name, norm=False):
    return setting(ALGORITHMS[name].network, norm=norm or name == "fedbn")


def distance(ours, theirs):
    """The largest difference between two outcomes."""
    assert (ours.shared is None) == (theirs.shared is None)
    pairs = list(zip(ours.personal, theirs.personal, strict=True))
    if theirs.shared is not None:
        pairs.append((ours.shared, theirs.shared))
    gaps = []
    for mine, other in pairs:
        assert other.keys() <= mine.keys()
        gaps += [(mine[n] - other[n]).abs().max() for n in other]
    return float(torch.stack(gaps).max())


@pytest.mark.parametrize("join", [1.0, 0.6], ids=["all-join", "some-join"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_agrees_with_an_independent_oracle(name, options, join):
    method, federation = make(name, **options), setting_of(name)
    ours = outcome(method, federation, join=join)
    theirs = reference(name, method, federation, join=join)
    assert distance(ours, theirs) < 1e-9


@pytest.mark.parametrize("name", sorted(TRAINED.keys() - {"apfl", "fedpn"}))
def test_agrees_on_batch_normalisation(name):
    """Statistics are entries like any other; the oracle of APFL is for models without."""
    whole = {"mix": 1.0} if name == "pfedme" else {}  # its oracle never blends statistics
    method, federation = make(name, **whole), setting_of(name, norm=True)
    ours, theirs = outcome(method, federation), reference(name, method, federation)
    assert distance(ours, theirs) < 1e-9


@pytest.mark.parametrize("name", TRAINED)
def test_a_cohort_of_one_equals_a_cohort_of_many(name):
    method, federation = make(name), setting_of(name)
    one, two, many = (outcome(method, federation, cohort=c) for c in (1, 2, 5))
    assert distance(one, many) < 1e-10
    assert distance(two, many) < 1e-10


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("state", ["average", "keep", "reset"])
def test_what_is_personal_is_never_uploaded(name, state):
    setup, method = setting_of(name), make(name, optimizer_state=state)
    task, fresh = setup.model.task, setup.fresh
    server, memories = method.init(task, fresh), Simulator(setup, method, 0).memories
    phase = Train(method, work_of(steps=2, epochs=0), 0)
    reply = phase.client(Site(0, setup), public(server), memories[0])
    upload, memory = reply.statistics, reply.memory
    for name_ in flatten(upload):
        entry = name_.rsplit("/", 1)[-1]
        assert not method.personal(task, entry), f"{name_} left its client"
    own = {n for n in fresh if method.personal(task, n)}
    assert own <= memory["model"].keys()
    assert "own" not in upload


@pytest.mark.parametrize("name", TRAINED)
def test_state_survives_save_and_load(name, tmp_path):
    method, setup = make(name), setting_of(name)
    path = tmp_path / "memories.bin"
    played = play(method, setup, count=2, path=path, journal=Kept(tmp_path))
    again = Simulator(setup, method, 0, path=path)
    found = Kept(tmp_path).load(State({}), again.restore)
    assert (found.round, found.counted) == (2, True)
    assert list(found.server) == list(played.server)
    memories = [(played.memories[c], again.memories[c]) for c in range(len(SIZES))]
    for a, b in [(played.server, found.server), *memories]:
        assert a.keys() == b.keys()
        a, b = flatten(a), flatten(b)
        assert list(a) == list(b), "sums over entries depend on their order"
        assert all(torch.equal(a[n], b[n]) for n in a)


class Frozen(FedAvg):
    def aggregate(self, server, mean, share):
        return server


class Sharing(Local):
    def personal(self, task, name):
        return False


class SharedHead(FedPer):
    def personal(self, task, name):
        return False


class BodyFirst(FedRep):
    def step(self, task, server, local, batch):
        return super().step(task, server, local, batch._replace(progress=1 - batch.progress))


class TrainedHead(FedBABU):
    def trainable(self, task, name):
        return name not in task.buffer_names


class SharedStatistics(FedBN):
    def personal(self, task, name):
        return super().personal(task, name) and "running" not in name


class SameBatch(PerFedAvg):
    def step(self, task, server, local, batch):
        part = len(batch.y) // 3
        x, y = batch.x[:part], batch.y[:part]
        again = batch._replace(x=torch.cat([x, x, x]), y=torch.cat([y, y, y]))
        return super().step(task, server, local, again)


class ScoredWithItsOwn(APFL):
    def predictor(self, server, memory):
        return memory["own"]


class Repelled(FedProx):
    def objective(self, task, params, server, batch):
        return replace(FedProx(mu=0.0), mu=-self.mu).objective(task, params, server, batch)


class Forgetful(FedAvgM):
    def aggregate(self, server, mean, share):
        still = {n: torch.zeros_like(v) for n, v in server["_velocity"].items()}
        return super().aggregate(server | {"_velocity": still}, mean, share)


class WrongSign(Scaffold):
    def start(self, task, server, memory):
        local = super().start(task, server, memory)
        flipped = {n: -c for n, c in local["correction"].items()}
        return local | {"correction": flipped}


class TiedToItself(Ditto):
    def step(self, task, server, local, batch):
        return super().step(task, server | {"model": local["model"]}, local, batch)


class ScoredWithTheServers(PFedMe):
    def predictor(self, server, memory):
        return server["model"]


class Unbalanced(FedRoD):
    def enroll(self, task, params, labels):
        memory = super().enroll(task, params, labels)
        return memory | {"model": memory["model"] | {"prior": params["prior"]}}


class NotAfresh(FedPN):
    def adapt(self, task, server, memory, fresh, batches):
        return super().adapt(task, server, memory, server["model"], batches)


MISTAKES = {
    "fedavg": Frozen,
    "local": Sharing,
    "fedper": SharedHead,
    "fedrep": BodyFirst,
    "fedbabu": TrainedHead,
    "fedbn": SharedStatistics,
    "perfedavg": SameBatch,
    "apfl": ScoredWithItsOwn,
    "fedprox": Repelled,
    "fedavgm": Forgetful,
    "scaffold": WrongSign,
    "ditto": TiedToItself,
    "pfedme": ScoredWithTheServers,
    "fedrod": Unbalanced,
    "fedpn": NotAfresh,
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_deliberate_mistake_is_noticed(name):
    """One mutation per algorithm, of the kind that other collections have shipped."""
    method, federation = make(name), setting_of(name)
    wrong = MISTAKES[name](**{f.name: getattr(method, f.name) for f in fields(method)})
    theirs = reference(name, method, federation)
    assert distance(outcome(wrong, federation), theirs) > 1e-6


def test_fedbn_without_normalisation_says_what_to_do():
    with pytest.raises(UserError, match=r"model\.norm=batch"):
        play(make("fedbn"), setting("classifier"))


def test_scaffold_refuses_momentum():
    with pytest.raises(UserError, match="plain SGD"):
        Scaffold(momentum=0.9)


@pytest.mark.parametrize(("rates", "left"), [({}, 0.75), ({"adapt_lr": 0.5}, 0.5)])
def test_perfedavgs_last_step_may_have_a_rate_of_its_own(rates, left):
    optimizer = PerFedAvg(inner_lr=0.25, **rates).adapt_optimizer()
    one = {"w": torch.ones(1)}
    assert optimizer.update(one, one, optimizer.init(one))[0]["w"] == left


def test_pfedmes_server_may_step_beyond_the_mean():
    """The authors' β goes up to 2."""
    server, mean = ({"model": {"w": torch.full((1,), value)}} for value in (1.0, 2.0))
    assert PFedMe(mix=2.0).aggregate(server, mean, 1.0)["model"]["w"] == 3
    assert resolve([{"algorithm": "pfedme", "pfedme": {"mix": 2.0}}]).method.mix == 2
    with pytest.raises(UserError, match=r"pfedme\.mix is 2\.5"):
        resolve([{"algorithm": "pfedme", "pfedme": {"mix": 2.5}}])


def test_batches_gather_the_planned_rows():
    setup = setting("classifier")
    data, rows = setup.data, setup.federation.train
    drawn = Train(FedAvg(), work_of(steps=2, epochs=0), 0).plan(rows[1], 1, 0)
    plan = stack_plans([drawn])
    found = list(batches(data, type(plan)(*(t[0] for t in plan))))
    assert len(found) == 2
    assert [b.y.tolist() for b in found] == data.y[torch.from_numpy(drawn)].tolist()
    assert all(bool(b.active) for b in found)
    assert len(rows[1]) == SIZES[1]
