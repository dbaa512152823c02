"""Who owns which rows: pure functions of labels and seed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedpn.core import seeds
from fedpn.core.errors import UserError
from fedpn.core.settings import find_object
from fedpn.data.dataset import Array, Dataset

# 20 % of so many rows are the 19 calibration rows that a 5 % threshold needs.
ENOUGH = 95


def usual(dataset: Dataset) -> str:
    """The scheme where none is named: the data's own clients, or hands of two or three classes."""
    if dataset.client is not None:
        return "natural"
    return "classes" if len(dataset.classes) > 2 else "dirichlet"


def partition(
    dataset: Dataset,
    scheme: str,
    clients: int,
    seed: int,
    cards: int = 3,
    beta: float = 0.3,
) -> list[Array]:
    """Deals a dataset's rows: those of each client, in ascending order.

    `natural` takes the clients that the data name, however many were asked for.
    """
    if ":" in scheme:
        return _own(scheme, dataset, clients, seed)
    if scheme not in PARTITIONS:
        raise UserError(f"there is no partition {scheme!r}; use one of {', '.join(PARTITIONS)}")
    if clients < 1:
        raise UserError(f"{clients} clients were asked for; a federation has at least 1")
    if clients > len(dataset) and scheme != "natural":
        raise UserError(
            f"{clients} clients cannot share the {len(dataset)} rows of {dataset.name!r}; "
            "use fewer --clients"
        )
    if len(np.unique(dataset.y)) < 2:
        raise UserError(
            f"{dataset.name!r} has fewer than 2 classes; there is nothing to tell apart"
        )
    if scheme == "natural" and dataset.client is None:
        raise UserError(
            f"the partition 'natural' needs to know whose each row is, and {dataset.name!r} does "
            "not say; add a 'client' column or array, or --set data.partition=dirichlet"
        )
    options: dict[str, dict[str, Any]] = {
        "classes": {"cards": cards},
        "dirichlet": {"beta": beta},
        "extended": {"cards": cards, "beta": beta},
        "quantity": {"beta": beta},
        "shards": {"cards": cards},
        "natural": {"client": dataset.client},
    }
    return PARTITIONS[scheme](dataset.y, clients, seed, **options.get(scheme, {}))


def _own(spec: str, dataset: Dataset, clients: int, seed: int) -> list[Array]:
    """Deals by a function of the user's own: `name(labels, clients, seed)` gives rows by client."""
    dealt = find_object("data.partition", spec, "partition")(dataset.y, clients, seed)
    try:
        owned = [np.sort(np.asarray(rows, np.int64).ravel()) for rows in dealt]
        flat = np.concatenate(owned)
    except (TypeError, ValueError) as error:
        raise UserError(f"data.partition: {spec} gives no list of row numbers ({error})") from None
    wrong = len(np.unique(flat)) < len(flat) or flat.min() < 0 or flat.max() >= len(dataset)
    if wrong or not all(len(rows) for rows in owned):
        raise UserError(
            f"data.partition: {spec} must give each client some rows, each row to one client, "
            f"by numbers from 0 to {len(dataset) - 1}"
        )
    return owned


def classes(labels: Array, clients: int, seed: int, cards: int = 3) -> list[Array]:
    """Deals classes like cards: the paper's partition, each client with two or three classes.

    A shuffled, balanced deck holds every class at least once; each client gets `cards` of them
    (more where classes would be left over), and a hand of one single class swaps a card. A class's
    rows are shared evenly over its cards.

    >>> owned = classes(np.array([0, 1, 2] * 6), clients=3, seed=0)
    >>> [len(rows) for rows in owned]
    [6, 6, 6]
    """
    kinds = np.unique(labels)
    _check_deck(len(kinds), cards)
    cards = max(cards, -(-len(kinds) // clients))
    rng = seeds.stream("classes", seed)
    deck = np.resize(rng.permutation(kinds), cards * clients)
    hands = rng.permutation(deck).reshape(clients, cards)
    _break_single_hands(hands)
    owner = np.empty(len(labels), np.int64)
    for kind in kinds:
        rows = rng.permutation(np.flatnonzero(labels == kind))
        holders = np.flatnonzero(hands == kind) // cards
        if len(rows) < len(holders):
            raise UserError(
                f"class {kind} has {len(rows)} rows for its {len(holders)} cards; use fewer "
                "--clients, or the partition 'dirichlet'"
            )
        owner[rows] = np.repeat(holders, _even_shares(len(rows), len(holders)))
    return _rows_by_owner(owner, clients)


def dirichlet(labels: Array, clients: int, seed: int, beta: float = 0.3) -> list[Array]:
    """Shares each class by a draw from Dir(β, …, β): the smaller β, the more unlike the clients.

    Whoever is left with less than half an even share, or with less than 45 rows where that is
    fewer, takes the missing rows from the then richest client, so nobody is left without any
    (Hsu et al., 2019, for the draw).
    """
    if beta <= 0:
        raise UserError(f"beta is {beta}; the partition 'dirichlet' needs one above 0")
    rng = seeds.stream("dirichlet", seed)
    owner = np.empty(len(labels), np.int64)
    for kind in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == kind))
        ends = np.round(np.cumsum(_shares(rng, beta, clients)) * len(rows)).astype(np.int64)
        owner[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right").clip(
            max=clients - 1
        )
    _level(owner, clients, rng)
    return _rows_by_owner(owner, clients)


def shards(labels: Array, clients: int, seed: int, cards: int = 3) -> list[Array]:
    """Rows in the order of their labels, cut into even shards, so many dealt to each client.

    FedAvg's pathological partition (McMahan et al., 2017), with two shards each; a client may be
    left with one class.

    >>> [rows.tolist() for rows in shards(np.arange(8) // 2, clients=2, seed=0, cards=2)]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    """
    if clients * cards > len(labels):
        raise UserError(
            f"{len(labels)} rows do not make {cards} shards for each of {clients} clients; use "
            "fewer --clients, or fewer data.cards"
        )
    rng = seeds.stream("shards", seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    owner = np.empty(len(labels), np.int64)
    dealt = rng.permutation(np.repeat(np.arange(clients), cards))
    owner[order] = np.repeat(dealt, _even_shares(len(labels), len(dealt)))
    return _rows_by_owner(owner, clients)


def extended(
    labels: Array, clients: int, seed: int, cards: int = 3, beta: float = 0.3
) -> list[Array]:
    """Classes are dealt like cards, and each class is shared by Dir(β, …, β) among its holders.

    So clients differ in their classes and in how much of each they have (Li & Wang, 2023).
    """
    rng = seeds.stream("extended", seed)
    owner = np.empty(len(labels), np.int64)
    hands = [np.unique(labels[rows]) for rows in classes(labels, clients, seed, cards)]
    for kind in np.unique(labels):
        holders = np.array([client for client, hand in enumerate(hands) if kind in hand])
        rows = rng.permutation(np.flatnonzero(labels == kind))
        free = len(rows) - len(holders)  # each has one row at the least
        ends = np.round(np.cumsum(_shares(rng, beta, len(holders))) * free).astype(np.int64)
        more = np.searchsorted(ends, np.arange(free), side="right").clip(max=len(holders) - 1)
        owner[rows] = np.concatenate([holders, holders[more]])
    return _rows_by_owner(owner, clients)


def quantity(labels: Array, clients: int, seed: int, beta: float = 0.3) -> list[Array]:
    """Rows at random, as many for each client as Dir(β, …, β) says: alike, but for their number.

    Whoever is left with very few takes some from the richest, as under `dirichlet`.
    """
    if beta <= 0:
        raise UserError(f"beta is {beta}; the partition 'quantity' needs one above 0")
    rng = seeds.stream("quantity", seed)
    ends = np.round(np.cumsum(_shares(rng, beta, clients)) * len(labels)).astype(np.int64)
    owner = np.empty(len(labels), np.int64)
    owner[rng.permutation(len(labels))] = np.searchsorted(
        ends, np.arange(len(labels)), side="right"
    ).clip(max=clients - 1)
    _level(owner, clients, rng)
    return _rows_by_owner(owner, clients)


def iid(labels: Array, clients: int, seed: int) -> list[Array]:
    """Deals rows at random, evenly."""
    rng = seeds.stream("iid", seed)
    return [np.sort(rows) for rows in np.array_split(rng.permutation(len(labels)), clients)]


def natural(labels: Array, clients: int, seed: int, client: Array) -> list[Array]:
    """Leaves every row with the client that the data name.

    >>> natural(np.array([0, 1, 0]), clients=2, seed=0, client=np.array([1, 0, 1]))
    [array([1]), array([0, 2])]
    """
    return _rows_by_owner(client, int(client.max()) + 1)


PARTITIONS: dict[str, Callable[..., list[Array]]] = {
    "classes": classes,
    "dirichlet": dirichlet,
    "extended": extended,
    "iid": iid,
    "natural": natural,
    "quantity": quantity,
    "shards": shards,
}


def _check_deck(kinds: int, cards: int) -> None:
    if kinds < 3:
        raise UserError(
            f"the partition 'classes' needs at least 3 classes and the data have {kinds}; "
            "use the partition 'dirichlet'"
        )
    if cards < 2:
        raise UserError(f"{cards} cards a client give it one class only; give at least 2")


def _break_single_hands(hands: Array) -> None:
    """Swaps a card of every hand that holds one class only.

    The other hand gives away one of at least two cards of other classes, so it keeps two classes
    itself. One such hand exists always: no class fills more than a third of the deck, rounded up.
    """
    for i in np.flatnonzero((hands == hands[:, :1]).all(axis=1)) if len(hands) > 1 else ():
        kind = hands[i, 0]
        if (hands[i] != kind).any():  # an earlier swap has mended it
            continue
        other = np.flatnonzero((hands != kind).sum(axis=1) >= 2)[0]
        card = np.flatnonzero(hands[other] != kind)[0]
        hands[i, 0], hands[other, card] = hands[other, card], kind


def _even_shares(rows: int, holders: int) -> Array:
    """Whole numbers that differ by one at most.

    >>> _even_shares(7, 3)
    array([3, 2, 2])
    """
    return rows // holders + (np.arange(holders) < rows % holders).astype(np.int64)


def _shares(rng: np.random.Generator, beta: float, clients: int) -> Array:
    """A Dirichlet draw by its gammas in log space, where a tiny β leaves no 0 / 0."""
    # Gamma(β) = Gamma(β + 1) · U^(1/β) (Marsaglia and Tsang, 2000).
    boosted = np.log(rng.standard_gamma(beta + 1, clients))
    logs = boosted + np.log1p(-rng.random(clients)) / beta
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _level(owner: Array, clients: int, rng: np.random.Generator) -> None:
    counts = np.bincount(owner, minlength=clients)
    floor = max(1, min(ENOUGH, len(owner) // (2 * clients)))
    for poor in np.flatnonzero(counts < floor):
        rich, need = int(counts.argmax()), floor - counts[poor]
        taken = rng.choice(np.flatnonzero(owner == rich), need, replace=False)
        owner[taken] = poor
        counts[rich] -= need
        counts[poor] += need


def _rows_by_owner(owner: Array, clients: int) -> list[Array]:
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=clients))
    return np.split(order, ends[:-1])
