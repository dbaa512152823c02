"""Streams of randomness: each its own, and those of before to the bit."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import fedpn
from fedpn.core.seeds import STREAMS, entropy, stream, torch_seed

SEEDS, PLACES = (0, 1, 2), (0, 1, 2)

# What each name was drawn by before streams had names, where those did not collide.
BEFORE = {
    "classes": 0,
    "iid": 1,
    "mix": 2,
    "split": 3,
    "sampling": 4,
    "batches": 5,
    "adapt": 6,
    "gallery": 7,
    "probe": 8,
    "dropout": 9,
    "stragglers": 10,
    "strangers": 31,
    "refusal": 32,
}


def everything():
    """All streams at small places, zeros among them."""
    for name, (_, places) in STREAMS.items():
        for seed, *place in itertools.product(SEEDS, *[PLACES] * len(places)):
            yield name, seed, *place


def test_every_name_has_a_number_of_its_own():
    numbers = [number for number, _ in STREAMS.values()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("name", STREAMS)
def test_the_number_of_places_is_enforced(name):
    places = len(STREAMS[name].places)
    entropy(name, 0, *[0] * places)
    for wrong in {places - 1, places + 1} - {-1}:
        for draw in (entropy, stream, torch_seed):
            with pytest.raises(TypeError, match=f"the stream '{name}' is told by"):
                draw(name, 0, *[0] * wrong)
    with pytest.raises(KeyError):
        entropy(f"no {name}", 0)


def test_no_two_streams_collide():
    """NumPy pads with zeros: `[s, 4]` and `[s, 4, 0]` are one stream, hence the numbers."""
    padded = [np.random.default_rng(e).integers(2**63) for e in ([0, 4], [0, 4, 0], [0, 4, 0, 0])]
    assert len(set(padded)) == 1
    told = list(everything())
    first = [tuple(stream(*place).integers(2**63, size=2).tolist()) for place in told]
    assert len(set(first)) == len(told)


def test_no_two_seeds_for_torch_collide_and_each_is_one_that_torch_takes():
    found = [torch_seed(*place) for place in everything()]
    assert len(set(found)) == len(found)
    assert all(0 <= seed < 2**63 for seed in found)


def test_a_stream_is_told_by_its_name_seed_and_place_alone():
    for place in everything():
        assert stream(*place).integers(2**63) == stream(*place).integers(2**63)


@pytest.mark.parametrize("name", BEFORE)
def test_what_was_drawn_before_is_drawn_still(name):
    """Else every figure that was published would be another's."""
    assert STREAMS[name].number == BEFORE[name]
    for seed, *place in itertools.product((0, 7), *[(0, 3, 19)] * len(STREAMS[name].places)):
        ours = stream(name, seed, *place)
        theirs = np.random.default_rng([seed, BEFORE[name], *place])
        assert ours.permutation(50).tolist() == theirs.permutation(50).tolist()
        assert ours.random(3).tolist() == theirs.random(3).tolist()


def test_nothing_else_draws_from_a_seed_of_its_own():
    """Names are of use only where all go by them."""
    home = Path(fedpn.__file__).parent
    drawing = [
        p for p in home.rglob("*.py") if re.search(r"default_rng\(|np\.random\.[a-z]", _code(p))
    ]
    assert [p.relative_to(home).as_posix() for p in drawing] == ["core/seeds.py"]


def _code(path):
    lines = path.read_text().splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith((">>>", "...")))
