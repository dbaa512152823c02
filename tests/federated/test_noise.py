"""Noise on a head's sums: what one row can change, how much noise there is, and its account."""

import math

import mpmath
import numpy as np
import pytest
import torch

from fedpn.algorithms.base import FedAvg
from fedpn.core.errors import UserError
from fedpn.core.noise import system
from fedpn.federated import privacy
from fedpn.federated.aggregation import AggregationSettings, private_mean
from fedpn.federated.gather import Total
from fedpn.federated.heads import make_head
from fedpn.federated.heads.noise import RELEASES, Noisy, nearest_psd, noisy
from fedpn.federated.phase import Phase
from fedpn.federated.privacy import spent
from fedpn.federated.settings import TrainSettings
from fedpn.federated.site import Site
from fedpn.federated.training import Train
from fedpn.runs import pipeline
from fedpn.runs.config import resolve
from fedpn.runs.prepare import prepare

SMALL = {
    "dataset": "digits",
    "algorithm": "analytic",
    "clients": 3,
    "head": {"filters": 5, "noise": 2.0, "clip": 1.5},
    "routing": {"abstain": 0.2, "outliers": 0.2},
}


class Keep(Phase):
    name = "keep"

    def server(self, server, total):
        return server | total.sum


def test_noise_is_as_wide_as_it_says():
    sums = {"a": {"x": torch.zeros(40_000), "y": torch.zeros(40_000)}}
    phase = noisy(Keep(), 3.0, lambda sums: {"a": {"x": 2.0, "y": 0.0}})
    found = phase.server({}, Total(sums, 1.0))
    assert float(found["a"]["x"].std()) == pytest.approx(6.0, rel=0.02)
    assert not found["a"]["y"].any()
    again = phase.server({}, Total(sums, 1.0))
    assert (again["a"]["x"] != found["a"]["x"]).any()  # nobody can draw it again
    assert noisy(Keep(), 0.0, lambda sums: {}).name == "keep"


def test_replacing_one_row_changes_sums_by_no_more_than_they_say():
    """Pictures of all kinds in the place of one row; every phase, as clients really play it."""
    config = resolve([SMALL])
    setup = prepare(config)
    server = config.method.init(setup.model.task, setup.fresh)
    rng = np.random.default_rng(0)
    images = [
        rng.integers(0, 256, (1, 28, 28)),
        np.zeros((1, 28, 28)),
        np.indices((28, 28)).sum(0)[None] % 2 * 255,
        np.triu(np.full((28, 28), 255))[None],
    ]
    for phase in make_head(config.head).phases():
        assert isinstance(phase, Noisy)
        observe = setup.observer(config.method, server)
        site = Site(0, setup, 0, observe)
        rows = site.calibration if phase.name == "choose" else site.train
        before = phase.client(site, server, {}).statistics
        lengths = phase.lengths(before)
        row, kept, label = int(rows[0]), setup.data.x[rows[0]].clone(), int(setup.data.y[rows[0]])
        for image in images:
            setup.data.x[row] = torch.from_numpy(np.asarray(image)).to(torch.uint8)
            setup.data.y[row] = (label + 1) % 10
            fresh = Site(0, setup, 0, setup.observer(config.method, server))
            after = phase.client(fresh, server, {}).statistics
            for role, params in before.items():
                for name, tensor in params.items():
                    moved = float((after[role][name] - tensor).double().norm())
                    assert moved <= lengths[role][name] * (1 + 1e-6) + 1e-9, (phase.name, name)
            setup.data.x[row], setup.data.y[row] = kept, label
        parts = [phase.client(Site(c, setup, 0, observe), server, {}).statistics for c in range(3)]
        total = {r: {n: sum(p[r][n] for p in parts) for n in before[r]} for r in before}
        server = phase.inner.server(server, Total(total, 3.0))


def _exact(sigma, delta):
    """The ε of one Gaussian mechanism (Balle & Wang, 2018), to 50 digits."""
    with mpmath.workdps(50):
        a = 1 / (2 * mpmath.mpf(sigma))

        def excess(epsilon):
            b = epsilon * sigma
            return mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b) - delta

        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while excess(high) > 0:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return float(high)


NOISES = (0.01, 0.5, 1.0, 4.0, 10.0, 300.0)


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
@pytest.mark.parametrize("noise", NOISES)
def test_the_account_is_exact(noise, delta):
    """So many Gaussian mechanisms are one, with less noise."""
    for releases in (1, RELEASES, 1000):
        exact = _exact(noise / math.sqrt(releases), delta)
        assert spent(noise, delta, releases) == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_the_account_at_its_ends():
    assert spent(1.0, 1e-5, 0) == 0 and spent(0.0, 1e-5, 3) == math.inf
    assert spent(1e9, 1e-5, 1) == 0  # the means lie closer than δ
    assert math.isfinite(spent(1e-6, 1e-5, 10))
    costs = [spent(noise, 1e-5, RELEASES) for noise in NOISES]
    assert costs == sorted(costs, reverse=True)


# Google's dp-accounting 0.6.0 at δ = 1e-5: by privacy loss distributions (in steps of 1e-4), and
# by Rényi divergences; by noise and releases.
THEIRS = {
    (1.0, 5): (11.480022811714345, 12.301691480042894),
    (4.0, 5): (2.2581453734161285, 2.451506386226333),
    (0.5, 100): (284.3918495181676, 294.8612600716533),
    (10.0, 50): (2.943225246101952, 3.1889915626335883),
    (2.0, 1): (1.993091407908809, 2.165715659029443),
}


def test_what_an_accountant_of_others_says():
    for (noise, releases), (pld, rdp) in THEIRS.items():
        exact = spent(noise, 1e-5, releases)
        assert exact == pytest.approx(pld, rel=1e-8)
        assert 1.03 * exact < rdp < 1.09 * exact


def test_a_run_under_noise_still_learns_and_tells_its_price(tmp_path):
    found = pipeline.run(resolve([SMALL, {"head": {"noise": 0.1}}]), tmp_path / "run")
    assert found["privacy"]["unit"] == "row" and found["privacy"]["epsilon"] > 10
    assert found["accuracy"]["global"]["ind"] > 0.6
    setup = prepare(resolve([SMALL]))
    assert setup.blueprint.mean == (127.5,)  # no sum of rows is sent for it


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "fedavg", "rounds": 1, "head": {"kind": "ridge", "noise": 1.0}},
        {"head": {"kind": "means", "noise": 1.0}},
        {"head": {"noise": 1.0, "features": "encoder"}},
    ],
)
def test_noise_that_would_not_cover_all_is_refused(changes):
    with pytest.raises(UserError, match="protects the sums of pictures' patches alone"):
        prepare(resolve([SMALL, changes]))


def test_what_noise_makes_negative_is_dropped():
    matrix = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = nearest_psd(matrix + matrix.T)
    values = torch.linalg.eigvalsh(found)
    assert float(values.min()) > -1e-9
    kept = torch.linalg.eigvalsh(matrix + matrix.T).clamp(min=0)
    torch.testing.assert_close(values, kept, atol=1e-9, rtol=0)


def test_drawing_who_joins_hides_nobody():
    """Who joins follows from the seed: a client pays for each round that it is in."""
    settings = AggregationSettings("private", noise=2.0)
    half = Train(FedAvg(), TrainSettings(join=0.5), seed=0, rounds=40)
    whole = Train(FedAvg(), TrainSettings(), seed=0, rounds=40)
    assert privacy.most_rounds(whole, 10) == 40
    times = privacy.most_rounds(half, 10)
    joined = [set(half.joining(10, r).tolist()) for r in range(40)]
    assert times == max(sum(c in members for members in joined) for c in range(10)) > 20
    account = privacy.of_means(settings, times, is_table=True)
    # Replacing a client is adding one and taking one away: noise of σ/2 for each round, composed.
    exact = _exact(2.0 / 2 / times**0.5, settings.delta)
    assert account.epsilon == pytest.approx(exact, rel=1e-9)
    assert privacy.COLUMNS in account.outside
    assert privacy.of_means(settings, 0, is_table=False).epsilon == 0


def test_all_slots_that_are_sent_are_clipped_together():
    moves = {"model": {"w": torch.full((3, 4), 3.0)}, "extra": {"v": torch.full((3, 9), 100.0)}}
    mean = private_mean(moves, 1.0, 0.0, system)
    length = sum(t.square().sum() for params in mean.values() for t in params.values()) ** 0.5
    assert float(length) == pytest.approx(1.0)
