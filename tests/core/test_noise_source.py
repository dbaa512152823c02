"""Noise is normal to its tails, from a source that nobody else can draw."""

import os
import random

import numpy as np
import pytest
import torch
from scipy import stats

from fedpn.core import noise
from fedpn.core.noise import keyed, normal


@pytest.mark.parametrize("seed", [b"a", b"b", b"c"])
def test_numbers_are_normal(seed):
    drawn = normal([200, 1000], keyed(seed)).flatten().numpy()
    assert drawn.dtype == np.float64
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert (drawn**power).mean() == pytest.approx(moment, abs=0.06)
    # Neighbours, and a number and its sign, tell nothing of each other.
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    assert abs(np.corrcoef(np.sign(drawn), np.abs(drawn))[0, 1]) < 0.01


def test_the_tails_are_those_of_the_bits():
    """All bits 0 are the farthest number; half of them the nearest to 0."""

    def of(word):
        return float(normal([], lambda count: int(word).to_bytes(8, "little")))

    assert of(0) == pytest.approx(stats.norm.ppf(2.0**-65), rel=1e-9)
    assert of(1) == -of(0) > 9
    assert 0 <= of(2**64 - 1) < 1e-9
    words = np.random.default_rng(0).integers(0, 2**63, 200)
    for word in words.tolist():
        expected = stats.norm.ppf((word + 0.5) * 2.0**-64)
        assert of(2 * word) == pytest.approx(expected, rel=1e-9)
        assert of(2 * word + 1) == pytest.approx(-expected, rel=1e-9)


def test_seeds_of_generators_change_nothing():
    """What runs seed has no part in it."""
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        random.seed(0)
        drawn.append(normal([8]))
    assert not torch.equal(*drawn)
    assert noise.system is os.urandom


def test_a_keyed_stream_is_its_keys_alone():
    first, again, other = (keyed(key) for key in (b"k", b"k", b"l"))
    parts = [first(5), first(64), first(5)]
    assert parts == [again(5), again(64), again(5)]
    assert parts[0] != parts[2] and other(64) != parts[1]
    assert len(set(parts[1])) > 40
