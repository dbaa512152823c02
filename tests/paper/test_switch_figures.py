"""The figures of the switch: thresholds, scores, strangers; against the run and against others."""

import math

import numpy as np
import pytest
import torch
from paper_oracles import mann_whitney
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from fedpn.core import dirichlet, store
from fedpn.data.sources.datasets import load
from fedpn.routing.scores import POSTERIOR_SCORES
from fedpn.routing.thresholds import threshold
from fedpn_paper import (
    refusal,
    scenes,
    scores,
    strangers,
)
from fedpn_paper.opened import open_run
from fedpn_paper.score_names import short


@pytest.fixture(scope="module")
def opened(home, played):
    """The small federation that threshold, scores and strangers share."""
    played("threshold")
    return open_run(home / "quick" / "runs" / "digits-fedpn-s0")


@pytest.fixture(scope="module")
def first_scene(opened):
    return next(scenes.scenes(opened))


@pytest.mark.parametrize("n", [9, 10, 57])
def test_limits_follow_the_rule_of_calibration(n):
    values = torch.randn(n, generator=torch.Generator().manual_seed(n))
    shares = (0.1, 0.2, 0.5, 0.75)
    found = scenes.limits(values, 1 - torch.tensor(shares, dtype=torch.float64))
    assert found.tolist() == [threshold(values, share) for share in shares]
    ends = scenes.limits(values, torch.tensor([0.0, 1.0]))
    assert ends.tolist() == [-math.inf, math.inf]


def test_a_score_at_the_limit_is_not_delegated():
    one = torch.tensor([True])
    places = {name: torch.tensor([0]) for name in ("ind", "ood", "mix")}
    scene = scenes.Scene(*[None] * 4, places, local_right=one, global_right=~one)
    found = scenes.switch_accuracy(scene, torch.tensor([0.5]), torch.tensor([0.4, 0.5, 0.6]))
    assert found["mix"].tolist() == [0, 1, 1]


def test_the_threshold_meets_the_run_at_its_own_quantile(home, played):
    result = played("threshold")
    curves = result["sets"]["digits"]
    metrics = store.read_json(home / "quick" / "runs" / "digits-fedpn-s0" / "metrics.json")
    at = result["quantiles"].index(0.9)
    for name, curve in curves["switch"]["log_density"].items():
        assert curve[at] == pytest.approx(metrics["accuracy"]["switch"][name], abs=1e-5)
        assert curve[0] == pytest.approx(metrics["accuracy"]["global"][name], abs=1e-5)
        assert curve[-1] == pytest.approx(metrics["accuracy"]["local"][name], abs=1e-5)
    for who, row in curves["reference"].items():
        assert row == pytest.approx(metrics["accuracy"][who], abs=1e-5)
    assert curves["auroc"]["log_density"] == pytest.approx(metrics["routing"]["auroc"], abs=1e-5)


def test_scores_meet_the_run_at_its_own_score(home, played):
    row = played("scores")["sets"]["digits"]["scores"]["log_density"]
    metrics = store.read_json(home / "quick" / "runs" / "digits-fedpn-s0" / "metrics.json")
    assert row["mix"] == pytest.approx(metrics["accuracy"]["switch"]["mix"], abs=1e-5)
    assert row["auroc"] == pytest.approx(metrics["routing"]["auroc"], abs=1e-5)
    assert row["gap_closed"] == pytest.approx(metrics["routing"]["gap_closed"], abs=1e-4)


def test_every_score_has_a_name():
    assert set(scores.ROUTERS) == set(scores.NAMES)
    taken = {short(name) for name in POSTERIOR_SCORES} | {"msp", "energy", "gaussian", "foreign"}
    assert set(scores.NAMES) == taken | {"neighbours"}


def test_neighbours_and_separation_by_others(first_scene):
    scene = first_scene
    found = scenes.rate(scene, scores.ROUTERS["neighbours"]).test
    trained = NearestNeighbors(n_neighbors=scores.NEIGHBOURS).fit(scene.train.local.z.numpy())
    distance = trained.kneighbors(scene.test.local.z.numpy())[0][:, -1]
    np.testing.assert_allclose(found, distance, rtol=1e-3, atol=1e-4)
    ind, ood = (distance[scene.sets[name]] for name in ("ind", "ood"))
    assert scenes.separation(scene, found) == pytest.approx(mann_whitney(ind, ood), abs=1e-3)


def test_gaussians_by_scipy(first_scene):
    scene = first_scene
    scene = scene._replace(train=in_double(scene.train), test=in_double(scene.test))
    train, labels = scene.train.local.z, scene.train_labels
    found = scenes.rate(scene, scores.ROUTERS["gaussian"]).test
    classes, counts = labels.unique(return_counts=True)
    parts = [train[labels == c] for c in classes]
    scatter = [np.cov(p.T.numpy(), bias=True) for p in parts]
    within = sum(n * s for n, s in zip(counts.numpy(), scatter, strict=True)) / len(labels)
    ridge = 1e-6 * np.diag(within).mean() * np.eye(len(within))
    density = sum(
        n
        / len(labels)
        * stats.multivariate_normal(p.mean(0).numpy(), 0.9 * s + 0.1 * within + ridge).pdf(
            scene.test.local.z.numpy()
        )
        for p, s, n in zip(parts, scatter, counts.numpy(), strict=True)
    )
    there = density > 1e-200
    np.testing.assert_allclose(found.numpy()[there], -np.log(density[there]), rtol=1e-6)


def in_double(pair):
    return pair._replace(local=pair.local._replace(z=pair.local.z.double()))


def test_the_rule_is_the_switch_of_the_library(opened):
    rows = np.sort(np.concatenate(opened.setup.federation.test))
    z = opened.observe.shared(rows).z.flip(1)
    told = refusal.refuse(opened, z)
    answered = wrong = total = 0
    for client in range(opened.setup.federation.clients):
        stream = refusal.stream_of(opened, client, z)
        decision = opened.rule(client).decide(stream.views)
        answered += int(decision.answered.sum())
        wrong += int((decision.answered & (decision.label != stream.labels)).sum())
        total += len(stream.labels)
    at = refusal.SHARES.tolist().index(opened.config.routing.abstain)
    assert float(told["coverage"][at]) == pytest.approx(answered / total)
    assert float(told["risk"][at]) == pytest.approx(wrong / answered)
    assert float(told["coverage"][0]) == 1
    assert float(told["coverage"][-1]) == 0
    # Half of what is shown is strangers, and every answer to them is wrong.
    assert float(told["risk"][0]) == pytest.approx((1 + float(told["known_wrong"][0])) / 2)


def test_strangers_are_told_by_every_score_as_scipy_says(opened):
    kinds = strangers.strangers(opened)
    assert set(kinds) == {"negatives", "noise"}
    own = opened.setup.dataset
    assert all(images.shape[1:] == own.shape for images in kinds.values())
    model, shared = opened.setup.model, opened.shared
    known = np.sort(np.concatenate(opened.setup.federation.test))
    told = strangers.measure(opened)["auroc"]["noise"]
    with torch.no_grad():
        z = [model.embed(shared, x) for x in (opened.setup.data.x[known], kinds_tensor(kinds))]
        posteriors = [model.posterior(shared, part) for part in z]
        totals = [dirichlet.entropy_of_mean(p.alpha).numpy() for p in posteriors]
    assert told["entropy_of_mean"] == pytest.approx(mann_whitney(*totals), abs=1e-3)


def kinds_tensor(kinds):
    return torch.from_numpy(kinds["noise"])


def test_strangers_of_another_dataset(real_data, opened, monkeypatch):
    monkeypatch.setitem(strangers.PAIRS, "digits", "mnist")
    kinds = strangers.strangers(opened)
    everyone = {image.tobytes() for image in load("mnist").x}
    assert len(kinds["other"]) == len(kinds["noise"])
    assert all(image.tobytes() in everyone for image in kinds["other"][:20])
