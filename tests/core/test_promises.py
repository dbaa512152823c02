"""Promises against simulation with known truth, scipy, direct sorting, and at the extremes."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from fedpn.core import promises
from fedpn.core.errors import UserError

SURE = 0.9
PLACE = (np.arange(60) + 0.5) / 60  # of the bins of the simulated rows, each as likely
CURVES = {  # the share of wrong answers in each bin
    "calibrated": 0.45 * PLACE**4,
    "wrong however sure": 0.02 + 0.4 * PLACE**5,
    "flat, just above": np.full(60, 0.0501),
    "good": 0.03 * PLACE**3,
    "hopeless": np.full(60, 0.3),
    "worst when surest": np.where(PLACE < 0.1, 0.3, np.where(PLACE < 0.7, 0.01, 0.4)),
    "waves": 0.06 + 0.05 * np.sin(20 * PLACE),
    "upside down": 0.3 * (1 - PLACE) ** 2,
}


def broken(shares, curve, rows, risk, draws, seed=0):
    """How often the true share of wrong answers exceeds the promise; the mean true coverage."""
    rng = np.random.default_rng(seed)
    truth = np.cumsum(shares * curve) / np.cumsum(shares)
    edges = torch.arange(len(curve), dtype=torch.float64)
    bad, coverage = 0, 0.0
    for _ in range(draws):
        count = rng.multinomial(rows, shares)
        counts = torch.tensor(np.stack([count, rng.binomial(count, curve)]))
        counts = torch.cat([counts, counts.new_zeros(2, 1)], 1)
        got = promises.promise(counts, edges, risk, SURE)
        if got.threshold >= 0:
            bad += bool(truth[int(got.threshold)] > risk)
            coverage += shares[: int(got.threshold) + 1].sum() / draws
    return bad / draws, coverage


def allowed(draws, chance=1 - SURE):
    return chance + 3 * math.sqrt(chance * (1 - chance) / draws)


@pytest.mark.parametrize("rows", [50, 200, 1000])
@pytest.mark.parametrize("name", CURVES)
def test_a_promise_is_broken_as_rarely_as_it_says(name, rows):
    rate, _ = broken(np.full(60, 1 / 60), CURVES[name], rows, risk=0.05, draws=400)
    assert rate <= allowed(400)


def test_the_starts_together_do_not_spend_more_than_there_is():
    rate, _ = broken(np.full(12, 1 / 12), np.full(12, 0.1001), 1500, risk=0.1, draws=5000)
    assert 0.03 < rate <= allowed(5000)


def test_no_curve_was_found_that_breaks_promises_more_often():
    """Selective risks that jump around the promise: what no proof covers."""
    rng = np.random.default_rng(1)
    rates = []
    for seed in range(40):
        shares = rng.dirichlet(np.ones(rng.integers(2, 16)))
        goal = 0.1 * (1 + rng.exponential(0.3, len(shares)) * rng.choice([-0.5, 1], len(shares)))
        curve = np.diff(goal.clip(0, 1) * shares.cumsum(), prepend=0) / shares
        rates.append(broken(shares, curve.clip(0, 1), 150, 0.1, draws=300, seed=seed)[0])
    assert max(rates) <= allowed(300)


def test_most_of_what_could_be_answered_is():
    even = np.full(60, 1 / 60)
    assert broken(even, CURVES["good"], 200, 0.05, 100)[1] > 0.95
    assert broken(even, CURVES["calibrated"], 1000, 0.05, 100)[1] > 0.77  # of 0.85 possible
    assert broken(even, CURVES["wrong however sure"], 1000, 0.05, 100)[1] > 0.6  # of 0.83
    assert broken(even, CURVES["hopeless"], 1000, 0.05, 100)[1] == 0


def test_starts_can_pass_and_share_the_level():
    for rows, risk in [(30, 0.1), (200, 0.05), (5000, 0.02), (5000, 0.5)]:
        begin = promises.starts(rows, risk, 0.1)
        level = 0.1 / len(begin)
        assert (1 - risk) ** begin[0] <= level < (1 - risk) ** (begin[0] - 1)
        assert all(b == 2 * a for a, b in itertools.pairwise(begin))
        assert len(begin) == 1 or begin[-1] <= rows


@pytest.mark.parametrize("wrong, rows", [(0, 1), (0, 22), (3, 50), (49, 50), (50, 50), (7, 1000)])
@pytest.mark.parametrize("sure", [0.5, 0.9, 0.99])
def test_upper_bound_against_scipy(wrong, rows, sure):
    test = binomtest(wrong, rows, alternative="less")
    right = test.proportion_ci(confidence_level=sure, method="exact").high
    assert promises.upper_bound(wrong, rows, sure) == pytest.approx(right, abs=1e-12)


def test_parts_add_up_to_the_whole():
    rng = np.random.default_rng(2)
    doubt = torch.tensor(rng.gamma(0.3, 0.5, 900))
    wrong = torch.tensor(rng.random(900)) < doubt / 6
    edges = promises.grid(math.log(10))
    whole = promises.tally(doubt, wrong, edges)
    parts = torch.tensor(rng.integers(0, 7, 900))
    summed = sum(promises.tally(doubt[parts == i], wrong[parts == i], edges) for i in range(7))
    assert torch.equal(whole, summed)
    assert whole.sum(1).tolist() == [900, int(wrong.sum())]
    got = promises.promise(whole, edges, 0.05)
    assert promises.promise(summed, edges, 0.05) == got
    inside = promises.may_answer(doubt, got.threshold)
    assert (got.answered, got.wrong) == (int(inside.sum()), int((wrong & inside).sum()))
    assert got.coverage == got.answered / 900 and 0.3 < got.coverage < 1
    assert got.bound == promises.upper_bound(got.wrong, got.answered) <= 0.05


def simulated(rng, rows, classes=6):
    """Probabilities some of whose rows are easy, and labels drawn from them."""
    sharp = rng.choice([0.5, 2, 8], (rows, 1))
    logits = sharp * rng.normal(size=(rows, classes))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return torch.tensor(probs), torch.tensor((probs.cumsum(1) < rng.random((rows, 1))).sum(1))


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("kind", ["lac", "aps", "raps"])
def test_sets_miss_as_rarely_as_promised(kind, random):
    rng, draws, miss, rows = np.random.default_rng(3), 200, 0.1, 100
    edges = promises.grid(1.6 if kind == "raps" else 1.0, both_ends=kind != "raps")
    hits, sizes, gaps = [], [], []
    for _ in range(draws):
        probs, labels = simulated(rng, 2 * rows)
        uniform = torch.tensor(rng.random(2 * rows)) if random else None
        true = promises.class_scores(probs, kind, uniform).gather(1, labels[:, None])[:rows, 0]
        limit = promises.set_threshold(promises.tally(true, None, edges), edges, miss)
        exact = float(true.kthvalue(math.ceil((rows + 1) * (1 - miss))).values)
        gaps.append(int(((edges >= exact) & (edges < limit)).sum()))
        assert limit >= exact
        sets = promises.prediction_set(
            probs[rows:], limit, kind, None if uniform is None else uniform[rows:]
        )
        hits.append(float(sets.gather(1, labels[rows:, None]).double().mean()))
        sizes.append(float(sets.sum(1).double().mean()))
    assert max(gaps) == 0  # the very next edge
    assert np.mean(hits) >= 1 - miss - 3 * np.std(hits) / math.sqrt(draws)
    assert np.mean(hits) < (0.93 if random or kind == "lac" else 0.97)
    assert min(sizes) >= 1 and np.mean(sizes) < (3.2 if random or kind == "lac" else 4)


def test_scores_by_hand():
    probs, uniform = torch.tensor([[0.2, 0.5, 0.3]]).double(), torch.tensor([0.25])
    by_hand = {
        ("lac", None): [0.8, 0.5, 0.7],
        ("aps", None): [1.0, 0.5, 0.8],
        ("aps", uniform): [0.85, 0.125, 0.575],
        ("raps", None): [1.2, 0.5, 0.9],
        ("raps", uniform): [1.05, 0.125, 0.675],
    }
    for (kind, number), right in by_hand.items():
        got = promises.class_scores(probs, kind, number)
        assert got[0].tolist() == pytest.approx(right)
        for limit, size in [(0.0, 1), (0.76, sum(r <= 0.76 for r in right)), (math.inf, 3)]:
            found = promises.prediction_set(probs, limit, kind, number)
            assert int(found.sum()) == size and found[0, 1]
    later = promises.class_scores(probs, "raps", penalty=0.2, free=2)
    assert later[0].tolist() == pytest.approx([1.2, 0.5, 0.8])


def test_quantiles_against_sorting():
    values = torch.tensor(np.random.default_rng(4).gamma(0.5, 0.4, 501))
    edges = promises.grid(10.0)
    counts = promises.tally(values, None, edges)
    for share in (0.0, 0.01, 0.5, 0.9, 0.99, 1.0):
        exact = values.sort().values[max(math.ceil(501 * share - 1e-9), 1) - 1]
        assert promises.quantile_of(counts, edges, share) == float(edges[edges >= exact][0])


def test_the_grid_is_fine_where_values_crowd():
    edges = promises.grid(math.log(10))
    assert edges[0] == 0 and torch.all(edges.diff() > 0) and 390 <= len(edges) <= 402
    assert edges.diff().max() < 0.012
    assert torch.tensor([math.log(10)]).float().double() <= edges[-1]
    both = promises.grid(1.0, both_ends=True)
    assert all(((both > 1 - 10.0**-k) & (both < 1)).sum() > 10 for k in range(1, 11))
    assert promises.grid(0.0).tolist() == [0, 1e-12]  # one class


EDGES = torch.tensor([0.0, 0.5, 1.0]).double()
NOTHING = promises.Promise(-math.inf, 0, 0, 0.0, 1.0)


def promised(doubt, wrong, risk=0.1):
    return promises.promise(promises.tally(doubt, wrong, EDGES), EDGES, risk)


def test_nothing_is_promised_from_too_few_or_wrong_rows():
    none = torch.zeros(0)
    assert promised(none, none.bool()) == NOTHING
    assert promised(torch.zeros(21), torch.zeros(21).bool()) == NOTHING
    assert promised(torch.zeros(500), torch.ones(500).bool()) == NOTHING
    assert not promises.may_answer(torch.tensor([-math.inf, 0.0]), NOTHING.threshold).any()


def test_all_right_is_all_answered_but_no_doubt_beyond_what_was_seen():
    got = promised(torch.zeros(22), torch.zeros(22).bool())
    assert got[:4] == (0.0, 22, 0, 1.0) and got.bound <= 0.1
    mixed = torch.tensor([0.0, 0.3]).repeat(20)
    assert promised(mixed, torch.zeros(40).bool())[:4] == (0.5, 40, 0, 1.0)


def test_ties_stand_or_fall_together():
    doubt, wrong = torch.full((100,), 0.5), torch.arange(100) < 30
    assert promised(doubt, wrong) == NOTHING
    both = torch.cat([doubt - 0.5, doubt]), torch.cat([wrong & False, wrong])
    assert promised(*both)[:4] == (0.0, 100, 0, 0.5)


def test_one_early_mistake_does_not_silence_the_rest():
    edges = torch.arange(300).double()
    wrong = torch.zeros(300).bool()
    wrong[3] = True
    counts = promises.tally(edges, wrong, edges)
    assert promises.promise(counts, edges, 0.1).answered == 300


def test_what_is_not_a_number_is_never_answered():
    doubt = torch.cat([torch.zeros(60), torch.full((40,), math.nan), torch.full((20,), math.inf)])
    got = promised(doubt, torch.zeros(120).bool())
    assert got[:4] == (0.0, 60, 0, 0.5)
    assert int(promises.may_answer(doubt, got.threshold).sum()) == 60
    assert promised(doubt[60:100], torch.zeros(40).bool()) == NOTHING
    counts = promises.tally(doubt, None, EDGES)
    assert promises.quantile_of(counts, EDGES, 0.9) == math.inf
    assert promises.set_threshold(counts, EDGES, 0.1) == math.inf
    assert promises.set_threshold(counts * 0, EDGES, 0.1) == math.inf
    assert promises.prediction_set(torch.full((1, 3), math.nan), 0.5, "aps").all()


@pytest.mark.parametrize("kind", ["lac", "aps", "raps"])
def test_one_class_is_always_in_the_set(kind):
    probs = torch.ones(30, 1)
    counts = promises.tally(promises.class_scores(probs, kind)[:, 0], None, EDGES)
    assert promises.set_threshold(counts, EDGES, 0.1) == (0 if kind == "lac" else 1)
    assert promises.prediction_set(probs, 0.0, kind).all()


@pytest.mark.parametrize("risk, sure", [(0, 0.9), (1, 0.9), (0.1, 1), (math.nan, 0.9), (0.1, 0)])
def test_impossible_promises_are_refused(risk, sure):
    with pytest.raises(UserError, match="between 0 and 1"):
        promises.promise(torch.zeros(2, 4).long(), EDGES, risk, sure)


def test_the_threshold_is_compared_as_it_was_counted():
    """A float32 just above an edge must not be rounded onto it."""
    edge = torch.tensor([0.1], dtype=torch.float64)
    single = torch.tensor([0.1])  # 0.100000001…
    assert promises.tally(single, None, edge)[0].tolist() == [0, 1]
    assert not promises.may_answer(single, float(edge))
