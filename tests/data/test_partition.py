"""Partitions: every row dealt once, the deck balanced, the impossible refused in words."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpn.core.errors import UserError
from fedpn.data import partition as module
from fedpn.data.dataset import Dataset
from fedpn.data.partition import ENOUGH, PARTITIONS, classes, dirichlet, iid, partition


def dataset(labels, client=None):
    labels = np.asarray(labels)
    names = tuple(map(str, range(labels.max() + 1)))
    return Dataset("toy", np.zeros((len(labels), 1), np.float32), labels, names, client)


def hands_of(kinds, clients, cards, seed, monkeypatch):
    """The hands as dealt, before and after single ones were broken."""
    seen = {}
    original = module._break_single_hands

    def spy(hands):
        seen["before"] = hands.copy()
        original(hands)
        seen["after"] = hands.copy()

    with monkeypatch.context() as patch:
        patch.setattr(module, "_break_single_hands", spy)
        classes(np.repeat(np.arange(kinds), 2 * cards * clients), clients, seed, cards)
    return seen["before"], seen["after"]


def test_the_papers_partition_on_toy_labels():
    owned = classes(np.repeat(np.arange(10), 600), clients=20, seed=0)
    labels = np.repeat(np.arange(10), 600)
    assert {len(rows) for rows in owned} == {300}  # three cards of 100 rows each
    assert {len(np.unique(labels[rows])) for rows in owned} <= {2, 3}


@pytest.mark.parametrize(
    ("kinds", "clients", "cards"), [(10, 20, 3), (3, 9, 2), (3, 40, 2), (11, 2, 3)]
)
def test_the_deck_is_balanced_and_no_hand_has_one_class(kinds, clients, cards, monkeypatch):
    for seed in range(30):
        before, after = hands_of(kinds, clients, cards, seed, monkeypatch)
        for hands in (before, after):
            counts = np.bincount(hands.ravel(), minlength=kinds)
            assert counts.min() >= 1
            assert counts.max() - counts.min() <= 1
        assert min(len(set(hand)) for hand in after.tolist()) >= 2


def test_single_hands_do_occur_before_they_are_broken(monkeypatch):
    before = [hands_of(3, 40, 2, seed, monkeypatch)[0] for seed in range(5)]
    assert any(len(set(hand)) == 1 for hands in before for hand in hands.tolist())


def test_a_hand_is_broken_even_where_every_other_hand_holds_its_class():
    hands = np.array([[0, 0, 0], [0, 1, 2], [1, 2, 0]])
    module._break_single_hands(hands)
    assert min(len(set(hand)) for hand in hands.tolist()) >= 2
    assert np.bincount(hands.ravel()).tolist() == [5, 2, 2]


def test_one_client_gets_every_class():
    assert classes(np.arange(40) % 10, clients=1, seed=0)[0].tolist() == list(range(40))


def test_few_clients_get_more_cards():
    labels = np.arange(200) % 10
    owned = classes(labels, clients=2, seed=0)
    assert set(labels[owned[0]]) | set(labels[owned[1]]) == set(range(10))


def test_a_small_beta_makes_clients_unlike_and_a_large_one_alike():
    labels = np.arange(20_000) % 10

    def evenness(beta):
        owned = dirichlet(labels, clients=10, seed=0, beta=beta)
        shares = [np.bincount(labels[rows], minlength=10) / len(rows) for rows in owned]
        return np.mean([share.max() for share in shares])

    assert evenness(0.05) > 0.5
    assert evenness(1000) < 0.12


def test_dirichlet_shares_are_those_of_the_distribution():
    labels = np.zeros(100_000, np.int64)
    shares = [len(dirichlet(labels, 4, seed, beta=0.5)[0]) / 100_000 for seed in range(200)]
    # A Dirichlet(½, ½, ½, ½) share has the mean 1/4 and the variance (1/4)(3/4) / (2 + 1).
    assert abs(np.mean(shares) - 0.25) < 0.06
    assert abs(np.std(shares) - 0.25) < 0.04


@pytest.mark.parametrize("beta", [1e-3, 0.1, 1.0])
def test_dirichlet_leaves_nobody_without_rows(beta):
    owned = dirichlet(np.arange(2000) % 10, clients=20, seed=0, beta=beta)
    assert min(map(len, owned)) >= min(ENOUGH, sum(map(len, owned)) // (2 * len(owned)))
    owned = dirichlet(np.arange(30) % 3, clients=30, seed=0, beta=beta)
    assert [len(rows) for rows in owned] == [1] * 30


def test_iid_shares_are_even():
    assert sorted(map(len, iid(np.zeros(11), clients=3, seed=0))) == [3, 4, 4]


def test_natural_keeps_the_clients_whatever_number_was_asked_for():
    owned = partition(dataset([0, 1, 0, 1], np.array([2, 0, 1, 2])), "natural", 99, seed=0)
    assert [rows.tolist() for rows in owned] == [[1], [2], [0, 3]]


@settings(max_examples=80, deadline=None)
@given(
    labels=st.lists(st.integers(0, 6), min_size=2, max_size=300),
    scheme=st.sampled_from(sorted(PARTITIONS)),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**31),
    beta=st.floats(1e-3, 100),
)
def test_every_row_is_dealt_once_by_the_seed(labels, scheme, clients, seed, beta):
    rng = np.random.default_rng(seed)
    data = dataset(labels, rng.permutation(np.arange(len(labels)) % clients))
    try:
        owned = partition(data, scheme, clients, seed, beta=beta)
    except UserError:
        assume(False)
    again = partition(data, scheme, clients, seed, beta=beta)
    assert np.sort(np.concatenate(owned)).tolist() == list(range(len(labels)))
    assert all(a.tolist() == b.tolist() for a, b in zip(owned, again, strict=True))
    assert all(len(rows) for rows in owned)
    if scheme == "classes":
        assert min(len(np.unique(data.y[rows])) for rows in owned) >= 2


def test_another_seed_deals_otherwise():
    labels = np.arange(200) % 10
    for scheme in (classes, dirichlet, iid):
        first, second = scheme(labels, 5, seed=0), scheme(labels, 5, seed=1)
        assert any(a.tolist() != b.tolist() for a, b in zip(first, second, strict=True)), scheme


@pytest.mark.parametrize(
    ("labels", "scheme", "clients", "options", "message"),
    [
        ([0, 1, 0], "iid", 4, {}, "4 clients cannot share the 3 rows of 'toy'"),
        ([0, 1, 0], "iid", 0, {}, "0 clients were asked for"),
        ([0, 0, 0], "iid", 2, {}, "fewer than 2 classes"),
        ([0, 1, 0, 1], "classes", 2, {}, "needs at least 3 classes .* 2; use the partition 'diri"),
        ([0, 1, 2, 0], "classes", 2, {"cards": 1}, "give at least 2"),
        ([0, 1, 2, 0, 1], "classes", 3, {}, "class 0 has 2 rows for its 3 cards; use fewer"),
        ([0, 1, 2], "dirichlet", 2, {"beta": 0.0}, "beta is 0.0; .* above 0"),
        ([0, 1, 2], "natural", 2, {}, "does not say; add a 'client' column"),
        ([0, 1, 2], "random", 2, {}, "no partition 'random'; use one of classes, dirichlet"),
    ],
)
def test_the_impossible_is_refused_in_words(labels, scheme, clients, options, message):
    with pytest.raises(UserError, match=message):
        partition(dataset(labels), scheme, clients, seed=0, **options)


@pytest.mark.parametrize("scheme", ["shards", "extended", "quantity"])
def test_other_partitions_deal_every_row_once_and_alike_for_a_seed(scheme):
    labels = np.random.default_rng(0).integers(0, 10, 3000)
    owned = partition(dataset(labels), scheme, 20, 0)
    assert np.array_equal(np.sort(np.concatenate(owned)), np.arange(3000))
    assert all(len(rows) for rows in owned)
    again, other = (partition(dataset(labels), scheme, 20, seed) for seed in (0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(owned, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(owned, other, strict=True))


def test_shards_are_even_and_hold_few_classes():
    labels = np.repeat(np.arange(10), 300)
    owned = partition(dataset(labels), "shards", 10, 0, cards=2)
    assert {len(rows) for rows in owned} == {300}
    assert max(len(np.unique(labels[rows])) for rows in owned) <= 2
    with pytest.raises(UserError, match="do not make 3 shards for each of 20 clients"):
        partition(dataset([0, 1] * 20), "shards", 20, 0)


def test_extended_keeps_the_hands_and_shares_them_unevenly():
    labels = np.repeat(np.arange(10), 600)
    hands = [set(labels[rows]) for rows in classes(labels, 20, 0)]
    owned = partition(dataset(labels), "extended", 20, 0, beta=0.3)
    assert [set(labels[rows]) for rows in owned] == hands
    sizes = np.array([len(rows) for rows in owned])
    assert sizes.std() > 50  # under `classes` all are alike
    even = np.array([len(rows) for rows in partition(dataset(labels), "extended", 20, 0, beta=1e6)])
    assert even.std() < sizes.std() / 3


def test_quantity_differs_in_size_alone():
    labels = np.random.default_rng(0).integers(0, 5, 20_000)
    owned = partition(dataset(labels), "quantity", 10, 0, beta=0.5)
    sizes = np.array([len(rows) for rows in owned])
    assert sizes.max() > 5 * sizes.min() >= 5 * ENOUGH
    largest = owned[sizes.argmax()]
    assert np.abs(np.bincount(labels[largest]) / len(largest) - 0.2).max() < 0.03
