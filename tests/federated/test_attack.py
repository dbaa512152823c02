"""Clients that mean harm do what they are told to, and nobody else is touched."""

import numpy as np
import pytest
import torch

import fedpn
from fedpn.algorithms.base import FedAvg
from fedpn.core.errors import UserError
from fedpn.federated.attack import MARK, TARGET, attackers, mark, spoil_rows, taken_in
from fedpn.federated.settings import FaultSettings
from fedpn.federated.simulator import Simulator
from settings import play, setting, with_inputs


def faults_of(kind, **more):
    return FaultSettings(attack=kind, attackers=0.4, **more)


def moved(setup, faults, cohort=0):
    """How one round moves the server's model."""
    method = FedAvg(optimizer_state="reset")
    played = play(method, setup, faults, count=1, steps=2, epochs=0, cohort=cohort)
    return torch.cat([(played.server["model"][n] - t).flatten() for n, t in setup.fresh.items()])


def test_a_share_of_clients_means_harm_and_none_without_an_attack():
    assert len(attackers(faults_of("scale"), 20, 0)) == 8
    assert not len(attackers(FaultSettings(attackers=0.4), 20, 0))
    assert not np.array_equal(*(attackers(faults_of("scale"), 20, seed) for seed in (0, 1)))


def alone(setup, client):
    """The move of a single client, in the mean of all by rows."""
    rows = setup.federation.train
    others = [c for c in range(len(rows)) if c != client]
    dropped = setup.data.x.clone()
    dropped[np.concatenate([rows[c] for c in others])] = torch.nan  # left out
    return moved(with_inputs(setup, dropped), None)


@pytest.mark.parametrize(("kind", "factor"), [("sign_flip", -1.0), ("scale", 10.0)])
def test_attackers_moves_are_turned_or_stretched(kind, factor):
    setup, faults = setting("classifier"), faults_of(kind)
    bad = attackers(faults, 5, 0)
    weights = np.array([len(rows) for rows in setup.federation.train], float)
    weights /= weights.sum()
    expected = sum(weights[c] * (factor if c in bad else 1.0) * alone(setup, c) for c in range(5))
    torch.testing.assert_close(moved(setup, faults), expected, rtol=1e-8, atol=1e-10)


def test_noise_is_as_long_as_it_says_and_does_not_depend_on_cohorts():
    setup = setting("classifier")
    faults = FaultSettings(attack="noise", attackers=0.2, strength=1000.0)
    (bad,) = attackers(faults, 5, 0)
    weights = np.array([len(rows) for rows in setup.federation.train], float)
    far = weights[bad] / weights.sum() * 1000 * alone(setup, bad).norm()
    assert float(moved(setup, faults).norm()) == pytest.approx(float(far), rel=0.02)
    torch.testing.assert_close(moved(setup, faults, 1), moved(setup, faults, 5))


def test_only_attackers_training_rows_are_spoilt():
    setup = setting("classifier", norm=True)
    setup.data.x.abs_()
    rows = setup.federation
    bad = attackers(faults_of("backdoor"), 5, 0)
    theirs = np.concatenate([rows.train[c] for c in bad])
    others = np.setdiff1d(np.arange(len(setup.data.y)), theirs)
    flipped = spoil_rows(faults_of("label_flip"), setup.data, rows, 0)
    assert torch.equal(flipped.y[theirs], setup.data.y.max() - setup.data.y[theirs])
    assert torch.equal(flipped.y[others], setup.data.y[others])
    assert torch.equal(flipped.x, setup.data.x)
    marked = spoil_rows(faults_of("backdoor"), setup.data, rows, 0)
    assert torch.equal(marked.x[others], setup.data.x[others])
    assert torch.equal(marked.y[others], setup.data.y[others])
    changed = (marked.x != setup.data.x).flatten(1).any(1)
    assert changed.sum() == -(-len(theirs) // 2)  # every second
    assert (marked.x[changed][..., -MARK:, -MARK:] == 255).all()
    assert (marked.y[changed] == TARGET).all()
    with pytest.raises(UserError, match="these data are a table"):
        Simulator(setting("classifier"), FedAvg(), 0, faults_of("backdoor"))


def test_who_is_taken_in_is_counted():
    setup = setting("classifier", norm=True)

    def sees_mark(x):
        return torch.stack([x[..., -1, -1].amax(1) == 255, torch.full((len(x),), 0.5)], 1)

    arguments = (setup.data, setup.federation, np.array([1]))
    assert taken_in(sees_mark, *arguments) == 1.0
    assert taken_in(lambda x: 1 - sees_mark(x).double(), *arguments) == 0.0
    assert (mark(setup.data.x)[..., :-MARK, :] == setup.data.x[..., :-MARK, :]).all()


def test_a_robust_mean_withstands_what_the_mean_does_not(tmp_path):
    common = {"dataset": "digits", "algorithm": "fedavg", "clients": 10, "rounds": 15}
    common |= {"data__partition": "iid", "method__optimizer_state": "reset"}
    common |= {"faults__attack": "noise", "faults__attackers": 0.3, "faults__strength": 30.0}
    found = {
        rule: fedpn.run(tmp_path / rule, **common, aggregation__rule=rule)
        for rule in ("mean", "median")
    }
    accuracy = {rule: run["accuracy"]["global"]["ind"] for rule, run in found.items()}
    assert accuracy["median"] > accuracy["mean"] + 0.05
    assert len(found["mean"]["attack"]["clients"]) == 3
    assert "Attacked on purpose: noise" in (tmp_path / "mean" / "report.html").read_text()
