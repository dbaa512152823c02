"""Randomness by name: every draw has a stream of its own, told by the seed and its place.

NumPy pads what it is seeded with by zeros, so that `[seed, 4]` and `[seed, 4, 0]` are one stream.
Hence each name has a number that no other has, and always the same number of places.
"""

from typing import NamedTuple

import numpy as np


class Stream(NamedTuple):
    number: int
    places: tuple[str, ...] = ()


STREAMS = {
    "classes": Stream(0),  # dealing classes like cards
    "iid": Stream(1),  # dealing rows evenly
    "mix": Stream(2, ("client",)),  # which own and foreign rows make up Mix
    "split": Stream(3, ("client",)),  # train, calibration, test
    "sampling": Stream(4, ("round",)),  # who joins a round
    "batches": Stream(5, ("round", "client")),
    "adapt": Stream(6, ("client",)),  # batches of the personal stage
    "gallery": Stream(7),
    "probe": Stream(8),  # rows that follow the global model through the rounds
    "dropout": Stream(9, ("round",)),
    "stragglers": Stream(10, ("round", "client")),
    "noise": Stream(12, ("round",)),  # of private means
    "dirichlet": Stream(13),  # dealing by Dirichlet draws
    "labels": Stream(14),  # label noise
    "tuning": Stream(15, ("repeat", "client")),  # rows held out from training
    "dim": Stream(17),  # noise on dim pictures
    "features": Stream(16),  # random filters and Fourier features
    "others": Stream(18, ("client",)),  # rows of other clients, where no class is foreign
    "attack": Stream(19),  # who means harm
    "spoil": Stream(20, ("round", "client")),  # the noise of those who do
    "shards": Stream(22),  # dealing shards of rows in the order of their labels
    "extended": Stream(23),  # dealing classes, and each by a Dirichlet draw
    "quantity": Stream(24),  # dealing rows by a Dirichlet draw
    "noisy": Stream(25, ("client",)),  # noise on a client's pictures
    "unseen": Stream(26),  # who never trains
    "limit": Stream(21),  # which rows a subset has
    "strangers": Stream(31),
    "refusal": Stream(32, ("client",)),
    "offices": Stream(42),  # which rows each office of the built-in set has
    "units": Stream(43, ("client",)),  # which row stands for those that belong together
    "standing": Stream(44),  # the same among rows of several clients
    "scrambled": Stream(41, ("client",)),  # test images whose pixels are shuffled
    "judged": Stream(36, ("client",)),  # foreign rows that a client is judged by, of very many
}


def entropy(name: str, seed: int, *place: int) -> tuple[int, ...]:
    """What a stream is seeded with.

    >>> entropy("batches", 0, 3, 1)
    (0, 5, 3, 1)
    """
    number, places = STREAMS[name]
    if len(place) != len(places):
        raise TypeError(f"the stream {name!r} is told by {places}, not by {place}")
    return (seed, number, *place)


def stream(name: str, seed: int, *place: int) -> np.random.Generator:
    """The generator of a stream, such as `stream("sampling", seed, round_)`."""
    return np.random.default_rng(entropy(name, seed, *place))


def torch_seed(name: str, seed: int, *place: int) -> int:
    """A seed for PyTorch's generators."""
    state = np.random.SeedSequence(entropy(name, seed, *place)).generate_state(1, np.uint64)
    return int(state[0] >> 1)
