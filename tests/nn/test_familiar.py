"""The stranger gate: what it lets through, that its sums add up, and that extremes stay finite."""

import functools
import math

import numpy as np
import pytest
import torch

from fedpn.core.trees import zip_with
from fedpn.data.sources import datasets
from fedpn.nn import familiar

add = functools.partial(functools.reduce, functools.partial(zip_with, torch.add))


def _gate(x, y, classes, parts=1):
    """Fits on the first half of the rows, and calibrates on the second."""
    half = len(x) // 2
    train = zip(x[:half].tensor_split(parts), y[:half].tensor_split(parts), strict=True)
    state = familiar.settle(add([familiar.moments(a, b, classes, 3) for a, b in train]), 3)
    s, labels = familiar.statistics(x[half:], state), y[half:]
    held_out = list(zip(s.tensor_split(parts), labels.tensor_split(parts), strict=True))
    fitted = familiar.fit(add([familiar.spread(a, b, classes) for a, b in held_out]))
    tally = sum(familiar.counts(familiar.distance(a, fitted, own=b)) for a, b in held_out)
    return state, fitted, familiar.threshold(tally)


def _share(x, gate):
    state, fitted, limit = gate
    return float(
        (familiar.distance(familiar.statistics(x, state), fitted) <= limit).double().mean()
    )


def _shuffled(x, rng):
    order = torch.rand(len(x), x[0, 0].numel(), generator=rng).argsort(1)
    places = order[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, places).reshape(x.shape)


@pytest.fixture(scope="module")
def digits():
    data = datasets.load("digits")
    x, y = torch.as_tensor(np.asarray(data.x)), torch.as_tensor(np.asarray(data.y)).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order], y[order]


def _coloured(x):
    return torch.cat([x, x // 2, 255 - x], 1)


@pytest.mark.parametrize(
    "view", [lambda x: x, _coloured, lambda x: x[:, :, ::3, ::3][:, :, 1:, 1:]]
)
def test_the_gate_keeps_digits_and_stops_what_is_none(digits, view):
    x, y = view(digits[0]), digits[1]
    gate = _gate(x[:1300], y[:1300], 10)
    known, rng = x[1300:], torch.Generator().manual_seed(1)
    assert _share(known, gate) > 0.9
    strangers = {
        "noise": torch.randint(0, 256, known.shape, generator=rng).byte(),
        "constant": torch.arange(256).byte()[:, None, None, None].expand(256, *known.shape[1:]),
        "inverted": 255 - known,
        "shuffled": _shuffled(known, rng),
    }
    assert {name: _share(s, gate) for name, s in strangers.items() if _share(s, gate) > 0.05} == {}


def test_sums_of_parts_add_up(digits):
    x, y = digits[0][:800], digits[1][:800]
    totals = [
        add([familiar.moments(a, b, 10, 0) for a, b in zip(*pairs, strict=True)])
        for pairs in ((x.tensor_split(n), y.tensor_split(n)) for n in (2, 20))
    ]
    torch.testing.assert_close(*totals, rtol=1e-9, atol=1e-6)
    s = familiar.statistics(x, familiar.settle(totals[0], 0))
    fits = [
        familiar.fit(
            add([familiar.spread(s[i::n], y[i::n], 10) for i in range(n)]),
        )
        for n in (2, 20)
    ]
    torch.testing.assert_close(*fits, rtol=1e-6, atol=1e-6)
    gates = [_gate(x, y, 10, parts) for parts in (2, 20)]
    distances = [familiar.distance(familiar.statistics(x, state), f) for state, f, _ in gates]
    torch.testing.assert_close(*distances, rtol=1e-3, atol=1e-2)


def test_rows_left_out_are_measured_as_by_a_fit_without_them():
    rng = torch.Generator().manual_seed(0)
    s, y = torch.randn(400, 3, generator=rng).double(), torch.arange(400) % 2
    left_out = familiar.distance(s, familiar.fit(familiar.spread(s, y, 2)), own=y)
    for i in range(3):
        others = torch.arange(400) != i
        without = familiar.fit(familiar.spread(s[others], y[others], 2))
        assert float(familiar.distance(s[i : i + 1], without)) == pytest.approx(
            float(left_out[i]), abs=0.05
        )


def _table(rows, columns, seed):
    """Rows of a few hidden causes, in columns of very different scales."""
    rng, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(9)
    causes = torch.randn(rows, min(columns, 3), generator=rng)
    mix = torch.randn(min(columns, 3), columns, generator=fixed)
    scales = 10 ** (4 * torch.rand(columns, generator=fixed) - 2)
    return (causes @ mix + 0.1 * torch.randn(rows, columns, generator=rng)) * scales


@pytest.mark.parametrize("columns", [1, 2, 10, 1000])
def test_tables(columns):
    x, fresh = _table(3000, columns, 0), _table(1000, columns, 1)
    gate = _gate(x, torch.zeros(len(x)).long(), 1)
    assert _share(fresh, gate) > 0.92
    assert _share(fresh * 100, gate) < 0.1
    assert _share(fresh + 20 * x.std(0), gate) < 0.05
    if columns > 3:
        orders = torch.rand(fresh.shape, generator=torch.Generator().manual_seed(2)).argsort(0)
        assert _share(fresh.gather(0, orders), gate) < 0.05  # each column alone is as it was
    if columns > 1:
        one = fresh.clone()
        one[:, 1] += 3e3 * x[:, 1].std()
        assert _share(one, gate) < 0.05


@pytest.mark.parametrize("columns", [1, 10, 1000])
def test_extremes_of_tables(columns):
    x, y = _table(1000, columns, 0), torch.zeros(1000).long()
    x[0], x[600] = math.nan, math.inf  # left out
    x[:, 0] = 5  # a constant column
    state, fitted, limit = _gate(x, y, 1)
    assert math.isfinite(limit)
    odd = torch.zeros(4, columns)
    odd[1], odd[2], odd[3] = 3e38, -3e38, math.inf
    s = familiar.statistics(odd, state)
    assert s.isfinite().all()
    assert (familiar.distance(s, fitted) > limit).all()
    odd[0, 0] = math.nan
    assert familiar.distance(familiar.statistics(odd[:1], state), fitted)[0] == math.inf


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 9), (1, 28, 28), (3, 40, 33)])
def test_images_of_any_size(shape):
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (300, *shape), generator=rng).byte()
    y = torch.randint(0, 3, (300,), generator=rng)
    state, fitted, limit = _gate(x, y, 5)  # two of the classes have no rows
    extremes = torch.stack([torch.full(shape, level).byte() for level in (0, 1, 128, 255)])
    s = familiar.statistics(extremes, state)
    assert s.isfinite().all()
    assert (familiar.distance(s, fitted) > limit).all()
    empty = familiar.moments(x[:0], y[:0], 5, 0)
    torch.testing.assert_close(
        add([familiar.moments(x, y, 5, 0), empty])["rows"].sum().item(), 300.0
    )
