"""What single uploads and sums tell, as docs/leaks.md says: properties, not accidents."""

import pytest
import torch

from fedpn.core.trees import public
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.gate import LookAtRows
from fedpn.federated.gather import moves
from fedpn.federated.heads import make_head
from fedpn.federated.heads.base import SLOT
from fedpn.federated.heads.sums import unpack
from fedpn.federated.listener import Listener
from fedpn.federated.phase import SUMS
from fedpn.federated.site import Site
from fedpn.federated.training import Train
from fedpn.runs.config import resolve
from fedpn.runs.pipeline import simulate
from fedpn.runs.prepare import prepare

SMALL = {"dataset": "digits", "clients": 4, "routing": {"abstain": 0.2, "outliers": 0.2}}
SUMMED = {"algorithm": "analytic", "head": {"filters": 5}}


def learned(config):
    setup = prepare(config)
    first = config.method.init(setup.model.task, setup.fresh)
    phases = make_head(config.head).phases()
    found = conduct(phases, simulate(config, setup), first, Journal(None), Listener())
    return setup, found.server


def sums_of(config, setup, server, client):
    gram = next(phase for phase in make_head(config.head).phases() if phase.name == "gram")
    site = Site(client, setup, 0, setup.observer(config.method, server))
    return gram.client(site, server, {}).statistics["sums"]


def counts_of(setup, client):
    labels = setup.labels(setup.federation.train[client])
    return torch.bincount(labels, minlength=setup.blueprint.classes)


@pytest.mark.parametrize("rule", ["mean", "private"])
def test_the_flows_that_move_are_the_classes_of_a_client(rule):
    """Noise is the server's, so that a single upload is as plain under a private mean."""
    more = {"aggregation": {"rule": rule}, "method": {"optimizer_state": "reset"}}
    config = resolve([SMALL, more])
    setup = prepare(config)
    task = setup.model.task
    sent = public(config.method.init(task, setup.fresh))
    phase = Train(config.method, config.train, config.seed)
    for client, rows in enumerate(setup.federation.train):
        memory = config.method.enroll(task, setup.fresh, setup.labels(rows))
        reply = phase.client(Site(client, setup, 0), sent, memory)
        moved = moves(sent, reply.statistics)["model"]["density.x0"].flatten(1)
        assert ((moved != 0).any(1) == (counts_of(setup, client) > 0)).all()


def test_class_counts_are_read_from_one_clients_sums():
    config = resolve([SMALL, SUMMED])
    setup, server = learned(config)
    for client in range(4):
        cross = sums_of(config, setup, server, client)["cross"]
        found = cross[-1] / server[SLOT]["weights"]
        torch.testing.assert_close(found, counts_of(setup, client).double())


def test_a_row_that_was_summed_lies_in_the_span_of_the_sums():
    """As long as a client has fewer rows than there are features."""
    config = resolve([SMALL, SUMMED, {"clients": 40, "head": {"filters": 20}}])
    setup, server = learned(config)
    gram = sums_of(config, setup, server, 0)["gram"]
    observe = setup.observer(config.method, server)
    values, vectors = torch.linalg.eigh(unpack(gram))
    outside = vectors[:, values < 1e-9 * values.max()]
    rows = {"in": setup.federation.train[0], "not in": setup.federation.test[0]}
    assert len(rows["in"]) < len(values)
    left = {use: (observe.see(r).double() @ outside).norm(dim=1) for use, r in rows.items()}
    assert left["in"].max() < 1e-3 * left["not in"].min()


def test_of_two_clients_each_has_the_sums_of_the_other():
    """Masks hide parts from the server; the total is everybody's, and less one's own part."""
    config = resolve([SMALL, SUMMED, {"clients": 2, "data": {"partition": "iid"}}])
    setup, server = learned(config)
    assert SUMS in public(server)
    mine, theirs = (sums_of(config, setup, server, client) for client in range(2))
    for name, total in server[SUMS].items():
        torch.testing.assert_close(total - mine[name], theirs[name])


def test_the_gate_tells_class_counts():
    setup = prepare(resolve([SMALL]))
    told = LookAtRows().client(Site(1, setup), {}, {}).statistics["gate"]
    assert (told["rows"] == counts_of(setup, 1)).all()
