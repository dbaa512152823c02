"""Federations: nothing leaks, nothing is lost, what is known and unknown is told apart."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpn.core.errors import UserError
from fedpn.data.dataset import Dataset
from fedpn.data.federation import Federation, check_disjoint, federate, tuning
from fedpn.data.partition import PARTITIONS, partition
from fedpn.data.sources.datasets import load


@st.composite
def federations(draw):
    kinds, clients = draw(st.integers(2, 6)), draw(st.integers(1, 6))
    labels = np.array(draw(st.lists(st.integers(0, kinds - 1), min_size=12, max_size=300)))
    seed = draw(st.integers(0, 2**31))
    owner = np.random.default_rng(seed).permutation(np.arange(len(labels)) % clients)
    data = Dataset("toy", np.zeros((len(labels), 1)), labels, tuple("abcdef"[:kinds]), owner)
    scheme = draw(st.sampled_from(sorted(PARTITIONS)))
    try:
        owned = partition(data, scheme, clients, seed)
        return owned, federate(labels, owned, seed)
    except UserError:
        assume(False)


@settings(max_examples=120, deadline=None)
@given(federations())
def test_every_row_has_one_place(dealt):
    owned, federation = dealt
    uses = (federation.train, federation.calibration, federation.test)
    everything = np.concatenate([rows for use in uses for rows in use])
    assert np.sort(everything).tolist() == list(range(len(federation.labels)))
    assert len(federation.left_over) == 0
    for client, rows in enumerate(owned):
        assert federation.rows(client).tolist() == rows.tolist()
        assert all(len(use[client]) for use in uses)


@settings(max_examples=120, deadline=None)
@given(federations())
def test_known_and_unknown_are_told_apart(dealt):
    _, federation = dealt
    labels, pooled = federation.labels, np.concatenate(federation.test)
    for client in range(federation.clients):
        owned = set(federation.owned(client))
        ind, ood, mix = (f(client) for f in (federation.ind, federation.ood, federation.mix))
        assert owned == set(labels[federation.rows(client)])
        assert set(labels[ind]) <= owned
        assert sorted(ood) == sorted(r for r in pooled if labels[r] not in owned)
        assert len(mix) == 2 * min(len(ind), len(ood))
        known, unknown = np.split(mix, 2)
        assert set(known) <= set(ind)
        assert set(unknown) <= set(ood)
        assert len(set(mix)) == len(mix)


@settings(max_examples=60, deadline=None)
@given(federations())
def test_the_seed_alone_decides(dealt):
    owned, federation = dealt
    again = federate(federation.labels, owned, federation.seed)
    for name in ("train", "calibration", "test"):
        pairs = zip(getattr(federation, name), getattr(again, name), strict=True)
        assert all(a.tolist() == b.tolist() for a, b in pairs)
    for client in range(federation.clients):
        assert federation.mix(client).tolist() == again.mix(client).tolist()


@settings(max_examples=60, deadline=None)
@given(federations())
def test_every_class_is_trained_on_where_the_rows_allow(dealt):
    _, federation = dealt
    for client in range(federation.clients):
        trained = np.unique(federation.labels[federation.train[client]])
        room = len(federation.train[client])
        assert len(trained) == min(len(federation.owned(client)), room)


def test_with_enough_rows_the_known_classes_are_the_owned_ones():
    labels = np.arange(6000) % 10
    data = Dataset("toy", np.zeros((6000, 1)), labels, tuple("0123456789"))
    federation = federate(labels, partition(data, "classes", 20, seed=0), seed=0)
    for client in range(20):
        owned = set(federation.owned(client))
        assert set(labels[federation.ind(client)]) == owned
        assert set(labels[federation.ood(client)]) == set(range(10)) - owned
        assert len(federation.ind(client)) == 90  # 30 % of 300


@pytest.mark.parametrize(
    "pair", [("test", "train"), ("calibration", "train"), ("test", "calibration")]
)
def test_a_leak_is_found(pair):
    labels = np.arange(80) % 4
    federation = federate(labels, [np.arange(40), np.arange(40, 80)], seed=0)
    check_disjoint(federation)
    source, target = pair
    row = getattr(federation, source)[1][0]
    spoilt = (np.append(getattr(federation, target)[0], row), getattr(federation, target)[1])
    with pytest.raises(UserError, match=rf"row {row} is among the .* of client \d: its figures"):
        check_disjoint(replace(federation, **{target: spoilt}))


def test_a_row_that_two_clients_own_is_a_leak():
    with pytest.raises(UserError, match=r"row 9 is among the .* client \d and .* client \d"):
        federate(np.arange(20) % 2, [np.arange(10), np.arange(9, 20)], seed=0)


def test_rows_that_nobody_owns_are_named():
    federation = federate(np.arange(20) % 2, [np.arange(5), np.arange(8, 20)], seed=0)
    assert federation.left_over.tolist() == [5, 6, 7]


def test_a_client_with_too_few_rows_is_refused():
    with pytest.raises(UserError, match="client 1 has 3 rows and needs 4"):
        federate(np.arange(20) % 2, [np.arange(17), np.arange(17, 20)], seed=0)


def test_another_seed_splits_otherwise():
    labels, owned = np.arange(40) % 4, [np.arange(40)]
    assert (
        federate(labels, owned, 0).train[0].tolist() != federate(labels, owned, 1).train[0].tolist()
    )


@settings(max_examples=60, deadline=None)
@given(federations())
def test_tuning_uses_training_rows_only(dealt):
    _, federation = dealt
    assume(all(len(rows) > 1 for rows in federation.train))
    tuned, other = tuning(federation, seed=1), tuning(federation, seed=1)
    tests = set(np.concatenate(federation.test))
    for client in range(federation.clients):
        both = np.concatenate([tuned.train[client], tuned.test[client]])
        assert sorted(both) == federation.train[client].tolist()
        assert len(tuned.train[client]) >= 1
        assert len(tuned.test[client]) >= 1
        assert tuned.test[client].tolist() == other.test[client].tolist()
        assert not tests & set(tuned.rows(client))
    assert tests <= set(tuned.left_over)


def test_tuning_holds_out_a_fifth_by_its_own_seed():
    federation = federate(np.arange(200) % 4, [np.arange(200)], seed=0)
    first, second = tuning(federation, seed=0), tuning(federation, seed=1)
    assert (len(first.train[0]), len(first.test[0])) == (80, 20)
    assert first.test[0].tolist() != second.test[0].tolist()


def test_tuning_needs_two_training_rows():
    rows = tuple(np.array([row]) for row in range(3))
    federation = Federation(np.array([0, 1, 0]), *((row,) for row in rows), seed=0)
    with pytest.raises(UserError, match="client 0 has 1 training rows; tuning needs 2"):
        tuning(federation, seed=0)


def test_a_thousand_clients_are_dealt_in_little_memory(real_data):
    tracemalloc.start()
    try:
        data = load("fashionmnist")
        owned = partition(data, "classes", 1000, seed=0)
        federation = federate(data.y, owned, seed=0)
        unknown = sum(len(federation.ood(client)) for client in range(0, 1000, 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert federation.clients == 1000
    assert unknown > 100_000
    assert peak < 400e6
