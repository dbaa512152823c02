"""Standards in small: each limit, temperature and set by itself, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from fedpn.core import promises
from fedpn.core.errors import UserError
from fedpn.core.promises import Promise
from fedpn.routing import standards
from fedpn.routing.bayes import Bayes
from fedpn.routing.opinion import of_logits
from fedpn.routing.outcomes import Outcome
from fedpn.routing.pooled import count_rows, odd_edges, receiver_edges, true_scores
from fedpn.routing.quantiles import Quantiles
from fedpn.routing.risk_control import RISKS, above, broken_words, outlook
from fedpn.routing.rule import Decision, Lesson, Scores, Views
from fedpn.routing.settings import RoutingSettings
from fedpn.routing.standards import Standards, decide, hold, of_state, reason, teach, usual
from fedpn.routing.thresholds import doubt_edges

K, EVERY, SOME = 3, torch.tensor([2, 1, 1]), torch.tensor([3, 1, 0])
SWITCH = Quantiles(epistemic=1.0, aleatoric=0.5, total=0.5)


def views(count, rng, strength=3.0, scale=1.0):
    """Rows of the first classes, and two models: right by their strength, sure by their scale."""
    labels = rng.integers(0, 2, count)
    both = (scale * (rng.normal(size=(count, K)) + strength * np.eye(K)[labels]) for _ in range(2))
    local, shared = (of_logits(torch.from_numpy(x), torch.zeros(count, 1)) for x in both)
    return Views(local, shared, torch.from_numpy(rng.normal(size=count))), torch.from_numpy(labels)


RISKY = RoutingSettings(risk=0.1, sure=0.9, temperature="off")


def lesson(
    count=60,
    pool=300,
    counts=SOME,
    kind="lac",
    strength=3.0,
    others=3.0,
    scale=1.0,
    clients=1,
    weighs=True,
):
    """A client's rows, and the counts of so many other clients with `pool` rows each."""
    rng = np.random.default_rng(0)
    seen, labels = views(count, rng, strength, scale)
    if not pool:
        return Lesson(seen, labels, counts)
    settings, parts = replace(RISKY, set_kind=kind), []
    for _ in range(clients):
        other, theirs = views(pool, rng, others)
        parts.append(count_rows(other.shared, theirs, counts, settings, weighs))
    return Lesson(seen, labels, counts, {name: sum(p[name] for p in parts) for name in parts[0]})


def foreign_promise(taught, risk=0.1, sure=0.9):
    """A limit that is kept on average, and at all but three of 40 hypothetical clients."""
    edges, counts = receiver_edges(K), taught.pooled["foreign"]
    limits = []
    for rows, wrong in counts[:-1].cumsum(2).tolist():
        pairs = zip(rows[:-1], wrong[:-1], strict=True)
        kept = [w <= max(1, risk * n) for n, w in pairs]
        last = kept.index(False) if False in kept else len(kept)
        limits.append(float(edges[last - 1]) if last else -math.inf)
    average = promises.promise(counts[-1], edges, risk, sure).threshold
    return promises.promise_at(counts[-1], edges, min(average, sorted(limits)[3]), sure)


def decision(outcome, total, probs=None):
    probs = torch.full((len(total), K), 1 / 3) if probs is None else torch.tensor(probs)
    total = torch.tensor(total, dtype=torch.float64)
    return Decision(probs, probs.argmax(-1), torch.tensor(outcome), total, total, total)


def holding(own=None, foreign=None, **more):
    """Standards with a promise, or without one."""
    pair = () if own is None else [[own, 9, 1, 0.5, 0.2], [foreign, 8, 0, 0.4, 0.1]]
    kept = torch.tensor(pair, dtype=torch.float64).reshape(-1, 5)
    asked = torch.tensor([0.05, 0.9][: len(pair)], dtype=torch.float64)
    return usual(SOME.double())._replace(promise=kept, asked=asked, **more)


def test_the_usual_standards_change_nothing():
    seen, _ = views(20, np.random.default_rng(1))
    before = SWITCH.decide(seen)
    after = hold(decide(SWITCH, seen, usual(SOME)), seen, usual(SOME))
    assert after.classes is None and usual(SOME).promises is None
    assert torch.equal(after.outcome, before.outcome) and torch.equal(after.label, before.label)
    torch.testing.assert_close(after.probs, before.probs)
    assert usual(SOME).promise.shape == (0, 5)
    assert usual(SOME).remarks() == [] and torch.equal(usual(SOME).counts, SOME)


def test_promises_are_read_as_they_were_kept():
    own, foreign = holding(0.3, 0.2).promises
    assert own == Promise(0.3, 9, 1, 0.5, 0.2) and foreign == Promise(0.2, 8, 0, 0.4, 0.1)
    assert isinstance(own.answered, int) and isinstance(own.wrong, int)


def test_each_side_keeps_to_its_limit_and_strangers_to_none():
    """A doubt that lies on the limit may be answered."""
    found = decision([0, 0, 1, 2, 2, 3, 4], [0.3, 0.31, 0.1, 0.2, 0.21, 0.1, 0.0])
    held = hold(found, Views(None, None, None), holding(0.3, 0.2))
    assert held.outcome.tolist() == [0, 1, 0, 2, 3, 2, 4]


def test_temperatures_are_of_the_side_that_a_row_is_on():
    probs = [[0.8, 0.1, 0.1]] * 2
    warm = holding(temperature=torch.tensor([2.0, 0.5]))
    found = hold(decision([1, 3], [0.0, 0.0], probs), Views(None, None, None), warm)
    for row, power in zip(found.probs.tolist(), (0.5, 2.0), strict=True):
        powers = np.array([0.8, 0.1, 0.1]) ** power
        assert row == pytest.approx(powers / powers.sum(), abs=1e-6)


@pytest.mark.parametrize("kind", ["lac", "aps", "raps"])
def test_sets_are_those_of_whoever_is_asked(kind):
    seen, _ = views(30, np.random.default_rng(2), strength=1.0)
    found = decide(Quantiles(0.0, 9.0, 9.0), seen, usual(SOME))
    number = torch.tensor(float(standards.KINDS.index(kind)))
    held = hold(found, seen, holding(odd=torch.tensor([0.4, 0.9]), kind=number))
    for i, sent_on in enumerate(found.delegated.tolist()):
        of, limit = (seen.shared, 0.9) if sent_on else (seen.local, 0.4)
        right = promises.prediction_set(of.probs[i : i + 1], limit, kind)
        assert held.classes[i].equal(right[0])
    assert found.delegated.any() and not found.delegated.all()
    assert len(held.classes.unique(dim=0)) > 2


def test_a_class_as_odd_as_may_be_is_in_the_set():
    opinion = of_logits(torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.zeros(1, 1))
    opinion = opinion._replace(probs=torch.tensor([[0.5, 0.25, 0.25]]))
    seen = Views(opinion, opinion, torch.zeros(1))
    held = usual(SOME)._replace(odd=torch.tensor([0.75, 0.75]).double())
    assert hold(decide(None, seen, held), seen, held).classes.tolist() == [[True, True, True]]


def test_words_tell_the_limit_of_the_side():
    held = holding(0.3, 0.2)
    low, high = Scores(0.5, 0.1, 0.25), Scores(2.0, 0.1, 0.25)
    like = "scored like this client's rows (0.5 ≤ 1)"
    unlike = "scored unlike this client's rows (2 > 1)"
    said = {
        Outcome.LOCAL_CONFIDENT: f"{like}, and sure enough for the promise (0.25 ≤ 0.3)",
        Outcome.LOCAL_AMBIGUOUS: f"{like}, but too doubtful for the promise (0.25 ≤ 0.3)",
        Outcome.LOCAL_OOD: f"{unlike}, and sure enough for the promise (0.25 > 0.2)",
        Outcome.GLOBAL_UNCERTAIN: f"{unlike}, but too doubtful for the promise (0.25 > 0.2)",
    }
    for outcome, words in said.items():
        side = low if outcome < Outcome.LOCAL_OOD else high
        assert reason(SWITCH, outcome, side, held) == words
    stranger = reason(SWITCH, Outcome.STRANGER, low, held)
    assert stranger == SWITCH.reason(Outcome.STRANGER, low)
    nothing = reason(SWITCH, Outcome.LOCAL_AMBIGUOUS, low, holding(-math.inf, 0.2))
    assert nothing == f"{like}, of which nothing can be promised"
    assert "at most 5 % are answered wrongly" in held.words()
    assert "its own calibration rows, with 90 % confidence" in held.words()


def test_remarks_name_what_cannot_be_promised_once():
    none = -math.inf
    assert holding(0.3, 0.2).remarks() == []
    text = "at most 5 % wrong answers cannot be promised of {} inputs, so nobody answers them"
    assert holding(none, 0.2).remarks() == [text.format("own")]
    assert holding(0.3, none).remarks() == [text.format("foreign")]
    assert len(holding(none, none, borrowed=torch.tensor(1.0)).remarks()) == 3
    same = holding(none, none)
    assert len(same._replace(promise=same.promise[:1].repeat(2, 1)).remarks()) == 1


def test_what_is_balanced_is_divided_by_its_prior():
    """1 / (K·π): of even classes 1; where some are absent, by the mixture that answers are of."""
    balanced = RoutingSettings(operating_point="balanced")
    _, held = teach(None, lesson(counts=EVERY), balanced)
    assert held.point.tolist() == pytest.approx([2 / 3, 4 / 3, 4 / 3])
    _, held = teach(None, lesson(counts=SOME), balanced)
    assert held.point.tolist() == pytest.approx([1 / (3 * p) for p in (0.375, 0.125, 0.5)])
    _, held = teach(None, lesson(), RoutingSettings())
    assert held.point.tolist() == [1.0] * 3
    _, held = teach(None, lesson(counts=torch.tensor([10**8, 10**8, 1])), balanced)
    assert held.point.tolist() == pytest.approx([2 / 3, 2 / 3, 1e6 / 3]), "one row says little"
    seen, _ = views(1, np.random.default_rng(3))
    tilted = usual(SOME)._replace(point=torch.tensor([0.0, 0.0, 9.0]))
    assert decide(None, seen, tilted).label.tolist() == [2]


def test_a_temperature_of_ones_own_needs_thirty_rows():
    hot = lesson(60, pool=0)
    loud = hot.views.local._replace(probs=(hot.views.local.logits * 8).softmax(-1))
    for count, own in ((30, True), (29, False)):
        index = torch.arange(count)
        part = hot._replace(
            views=hot.views._replace(local=loud).take(index), labels=hot.labels[:count]
        )
        _, held = teach(None, part, RoutingSettings())
        assert (float(held.temperature[0]) != 1.0) == own
        assert float(held.temperature[1]) == 1.0, "nobody's rows tell"
        assert not held.borrowed
    losses = torch.linspace(2.0, 1.0, 61).double()
    _, held = teach(None, part._replace(pooled={"shared/heat": losses}), RoutingSettings())
    assert held.temperature.tolist() == pytest.approx([10.0, 10.0])


@pytest.mark.parametrize(("abstain", "rows"), [(0.05, 19), (0.2, 9)])
def test_rows_suffice_from_the_number_that_thresholds_need(abstain, rows):
    settings = RoutingSettings(outliers=0.1, abstain=abstain, temperature="off")
    for count, borrowed in ((rows, 0), (rows - 1, 1)):
        for kind in (Quantiles, Bayes):
            rule, held = teach(kind, lesson(count), settings)
            assert int(held.borrowed) == borrowed
            assert held.temperature.tolist() == [1.0, 1.0]
    assert rule.weight == 0.0
    edges, pool = doubt_edges(K), lesson(count).pooled
    shared = promises.quantile_of(pool["shared/doubt"], edges, 1 - abstain)
    bayes = promises.quantile_of(pool["bayes/doubt"], edges, 1 - abstain)
    assert (rule.own_doubt, rule.foreign_doubt) == (bayes, shared)
    rule, _ = teach(Quantiles, lesson(count), settings)
    assert rule == Quantiles(-math.inf, 0.0, shared)


def test_the_promise_of_one_model_is_that_of_its_rows():
    taught = lesson(200, pool=0)
    _, held = teach(None, taught, RISKY)
    local = taught.views.local
    counts = promises.tally(local.total, local.label != taught.labels, doubt_edges(K))
    right = promises.promise(counts, doubt_edges(K), 0.1, 0.9)
    assert held.promises == (right, right) and right.threshold > 0
    assert held.asked.tolist() == [0.1, 0.9]


@pytest.mark.parametrize(("strength", "others"), [(2.0, 2.0), (7.0, 2.5), (2.5, 7.0)])
def test_what_a_switch_sends_on_keeps_to_both_limits(strength, others):
    taught = lesson(300, pool=3000, strength=strength, others=others, weighs=False)
    spoilt = [7] if strength < 7 else []  # rows of which nobody answers, and nothing is promised
    taught.views.score[spoilt] = math.nan
    rule, held = teach(Quantiles, taught, RISKY)
    assert not held.borrowed
    edges, found = doubt_edges(K), rule.decide(taught.views)
    theirs = foreign_promise(taught)
    beyond = found.delegated & (found.total > theirs.threshold)
    assert beyond.any() == (strength < 7)
    beyond[spoilt] = True
    doubt = torch.where(beyond, math.inf, found.total)
    mine = promises.promise(
        promises.tally(doubt, found.label != taught.labels, edges), edges, 0.1, 0.9
    )
    own, foreign = held.promises
    assert own == mine
    least = min(mine.threshold, theirs.threshold) if mine.coverage < 1 else theirs.threshold
    assert foreign == theirs._replace(threshold=least)
    assert (mine.coverage == 1) == (strength == 7), "all own rows are answered, so nothing binds"


@pytest.mark.parametrize(("strength", "others", "scale"), [(2.5, 1.5, 1.0), (6.0, 1.5, 0.3)])
def test_bayes_keeps_to_both_limits_unless_it_has_every_class(strength, others, scale):
    """Also where own rows, right but doubtful, would promise more than foreign ones do."""
    for counts in (SOME, EVERY):
        more = {"strength": strength, "others": others, "scale": scale}
        taught = lesson(300, counts=counts, **more)
        rule, held = teach(Bayes, taught, RISKY)
        own, foreign = held.promises
        common, seen = rule.common(taught.views)
        found, edges = common.decide(seen), doubt_edges(K)
        doubt, wrong = found.total, found.label != taught.labels
        if counts is EVERY:
            assert (
                own
                == foreign
                == promises.promise(promises.tally(doubt, wrong, edges), edges, 0.1, 0.9)
            )
            continue
        theirs = foreign_promise(taught)
        assert (doubt > theirs.threshold).any()
        doubt = torch.where(doubt > theirs.threshold, math.inf, doubt)
        mine = promises.promise(promises.tally(doubt, wrong, edges), edges, 0.1, 0.9)
        both = min(mine.threshold, theirs.threshold) if mine.coverage < 1 else theirs.threshold
        assert own.threshold == foreign.threshold == both
        assert own[1:] == mine[1:] and foreign[1:] == theirs[1:]


def test_without_others_rows_nothing_foreign_is_promised():
    for kind in (Quantiles, Bayes):
        _, held = teach(kind, lesson(200, pool=0), RISKY)
        assert held.promises[1] == Promise(-math.inf, 0, 0, 0.0, 1.0)


def test_own_inputs_are_promised_though_foreign_ones_cannot_be():
    _, held = teach(Quantiles, lesson(200, pool=5), RISKY)
    own, foreign = held.promises
    assert own.threshold > 0 and foreign.threshold == -math.inf
    assert not held.borrowed, "its own rows suffice"


@pytest.mark.parametrize(("kind", "name"), [(Quantiles, "shared"), (Bayes, "bayes")])
def test_a_limit_is_lent_that_all_but_a_few_clients_keep_to(kind, name):
    """Nine or more clients with rows enough, of which one in ten may lie above it."""
    edges = doubt_edges(K)
    for clients in (8, 20):
        taught = lesson(5, pool=60, clients=clients, others=2.5, weighs=kind is Bayes)
        votes = taught.pooled["limits"]
        assert int(votes.sum()) == clients
        _, held = teach(kind, taught, RISKY)
        assert held.borrowed
        own = held.promises[0]
        if clients == 8:
            assert own.threshold == -math.inf, "too few clients to say what one in ten does"
            continue
        limit = edges[int(votes.cumsum(0).ge(2).nonzero()[0]) - 1]
        right = promises.promise_at(taught.pooled[f"{name}/doubt"], edges, float(limit), 0.9)
        assert right.threshold > -math.inf and own[1:] == right[1:]


def test_rows_that_refuse_a_promise_are_lent_none():
    """A third of its labels are wrong, and hardly any of 20 others (at a bank: 43 of 240)."""
    for count in (18, 25, 240):
        for every, answers in ((3, False), (count + 1, True)):
            taught = lesson(count, strength=6.0, pool=60, clients=20, others=6.0)
            taught.labels[every - 1 :: every] = 2
            rule, held = teach(Bayes, taught, RISKY)
            assert held.answers == answers
            assert bool(held.borrowed) == (count == 18), "22 rows without a mistake keep 10 %"
            found = hold(decide(rule, taught.views, held), taught.views, held)
            assert bool(found.answered.any()) == answers
            assert answers or "promised of own inputs" in " ".join(held.remarks())


def test_rows_that_leave_it_open_are_lent_a_limit():
    """One mistake among 60 surest rows neither keeps 5 % surely nor shows more; three do."""
    asked = replace(RISKY, risk=0.05)
    for mistakes, lent in ((1, True), (4, False)):
        taught = lesson(60, strength=6.0, pool=200, clients=20, others=6.0)
        common, seen = Bayes.calibrate(taught, asked).common(taught.views)
        taught.labels[common.decide(seen).total.argsort()[:mistakes]] = 2
        _, held = teach(Bayes, taught, asked)
        assert bool(held.borrowed) == held.answers == lent


def test_where_nothing_can_be_promised_it_is_said_what_could():
    """A tenth of the rows is wrong whatever the doubt: 5 % never, 15 % from these rows."""
    rng = np.random.default_rng(5)
    doubts, wrong = torch.from_numpy(rng.random(400)), torch.arange(400) % 10 == 0
    edges = promises.grid(1.0)
    counts = promises.tally(doubts, wrong, edges)
    hope = outlook(counts, edges, 0.05, 0.9)
    assert hope.rows == math.inf
    assert promises.promise(counts, edges, hope.risk, 0.9).threshold > -math.inf
    lower = [r for r in RISKS if 0.05 < r < hope.risk]
    assert all(promises.promise(counts, edges, r, 0.9) == promises.NOTHING for r in lower)
    few = promises.tally(torch.zeros(100), torch.arange(100) < 6, edges)
    hope = outlook(few, edges, 0.08, 0.9)
    assert math.inf > hope.rows > 100
    n = int(hope.rows)
    again = promises.tally(torch.zeros(n), torch.arange(n) < 6 * n // 100, edges)
    assert promises.promise(again, edges, 0.08, 0.9).threshold == 0.0
    held = holding(-math.inf, 0.2)._replace(outlook=torch.tensor([[0.1, 1600.0], [0.0, 0.0]]))
    assert held.remarks() == [
        "at most 5 % wrong answers cannot be promised of own inputs, so nobody answers them (10 % "
        "could be; 1,600 calibration rows like these might do for it)"
    ]


def test_test_rows_refute_a_promise_beyond_chance():
    told = {
        "risk": 0.1,
        "own": {"wrong": 0.15, "rows": 20},
        "foreign": {"wrong": 0.15, "rows": 400},
    }
    assert above(told, "own") and not above(told, "own", 0.05)
    assert binom.sf(2, 20, 0.1) > 0.05 > binom.sf(59, 400, 0.1)
    assert broken_words(told) == ["15.0 % of 400 answers to foreign inputs are wrong"]


@pytest.mark.parametrize("kind", ["lac", "raps"])
def test_sets_go_by_own_rows_and_foreign_ones_are_no_smaller(kind):
    settings = RoutingSettings(sets=0.1, set_kind=kind)
    taught, edges = lesson(100, kind=kind), odd_edges(kind, K)
    rule, held = teach(Quantiles, taught, settings)
    found = rule.decide(taught.views)
    asked = torch.where(found.delegated[:, None], taught.views.shared.probs, found.probs)
    counts = promises.tally(true_scores(asked, taught.labels, kind), None, edges)
    own = promises.set_threshold(counts, edges, 0.1)
    pool = promises.set_threshold(taught.pooled["shared/odd"], edges, 0.1)
    assert held.odd.tolist() == [own, max(own, pool)]
    assert standards.KINDS[int(held.kind)] == kind
    _, held = teach(Quantiles, lesson(5, kind=kind), settings)
    assert float(held.odd[0]) == promises.set_threshold(
        lesson(5, kind=kind).pooled["shared/odd"], edges, 0.1
    )
    _, held = teach(Quantiles, taught._replace(pooled=None), settings)
    assert held.odd.tolist() == [own, own]


def test_standards_of_other_names_are_refused():
    state = usual(SOME)._asdict()
    assert isinstance(of_state(state), Standards)
    with pytest.raises(UserError, match="cannot be read: more"):
        of_state(state | {"more": torch.zeros(1)})
    with pytest.raises(UserError, match="not finite"):
        of_state(state | {"point": torch.tensor([1.0, torch.nan, 1.0])})  # one is enough
