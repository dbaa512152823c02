"""The head in closed form: equal to scikit-learn's on pooled rows, whatever the partition."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as Reference
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedpn.core.errors import UserError
from fedpn.core.trees import map_slots
from fedpn.federated.checkpoint import Journal
from fedpn.federated.conductor import conduct
from fedpn.federated.heads import make_head, sums
from fedpn.federated.heads.base import Seen
from fedpn.federated.heads.ridge import RIDGES, TEMPERATURES, pack, unpack
from fedpn.federated.heads.sums import solve
from fedpn.federated.listener import Listener
from fedpn.federated.settings import HeadSettings
from fedpn.nn import patches
from fedpn.runs.config import resolve
from fedpn.runs.phases import phases_of
from fedpn.runs.pipeline import simulate
from fedpn.runs.prepare import assemble, deal_rows, prepare, read

CONFIG = {
    "algorithm": "analytic",
    "clients": 4,
    "head": {"filters": 12, "fourier": 30},
    "routing": {"abstain": 0.2, "outliers": 0.2},
}


def learned(config, setup=None):
    """The head's state after its phases, and the setup."""
    setup = setup or prepare(config)
    simulator = simulate(config, setup)
    first = config.method.init(setup.model.task, setup.fresh)
    phases = [phase for phase in phases_of(config) if phase.sums and not phase.remembers]
    found = conduct(phases, simulator, first, Journal(None), Listener())
    return found.server, setup


def phi(config, server, setup, rows):
    head = make_head(config.head)
    x = setup.data.x[torch.from_numpy(rows)]
    shared = config.method.shared(server)
    return head.features(Seen(setup.model, shared, x, x), server["head"]).double().numpy()


@pytest.mark.parametrize("features", ["inputs", "encoder", "inputs+encoder"])
def test_agrees_with_scikit_learn_on_pooled_rows(features):
    config = resolve([CONFIG, {"head": {"features": features}}])
    server, setup = learned(config)
    rows = np.concatenate(setup.federation.train)
    features, labels = phi(config, server, setup, rows), setup.dataset.y[rows]
    counts = np.bincount(labels, minlength=10)
    weights = (len(labels) / 10 / counts)[labels]
    x, y = features[:, :-1], np.eye(10)[labels]
    mean = np.average(x, axis=0, weights=weights)
    std = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights))
    std[std < 1e-5] = np.inf
    state = server["head"]
    reference = Reference(alpha=float(state["ridge"]))
    reference.fit((x - mean) / std, y, sample_weight=weights)
    ours = features @ state["matrix"].double().numpy()
    theirs = reference.predict((x - mean) / std)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


@pytest.mark.parametrize("clients", [2, 20, 200])
def test_the_partition_does_not_matter(clients):
    """The same rows of training and calibration, dealt to so many clients."""
    config = resolve([CONFIG, {"data": {"partition": "iid"}}])
    server, setup = learned(config)
    federation = setup.federation
    owner = {"train": np.concatenate(federation.train)}
    owner["calibration"] = np.concatenate(federation.calibration)
    parts = {
        use: tuple(np.sort(part) for part in np.array_split(rows, clients))
        for use, rows in owner.items()
    }
    from dataclasses import replace

    test = tuple(np.array_split(np.concatenate(federation.test), clients))
    other = replace(federation, **parts, test=test)
    again, _ = learned(config, replace(setup, federation=other))
    for name, tensor in server["head"].items():
        torch.testing.assert_close(again["head"][name], tensor, rtol=1e-6, atol=1e-6)


def test_lambda_and_temperature_are_the_best_on_calibration_rows():
    config = resolve([CONFIG])
    server, setup = learned(config)
    rows = np.concatenate(setup.federation.calibration)
    truth = setup.dataset.y[rows]
    train = np.concatenate(setup.federation.train)
    labels = setup.dataset.y[train]
    weights = server["head"]["weights"].numpy()[labels]
    features = phi(config, server, setup, train)
    gram = torch.from_numpy((features * weights[:, None]).T @ features)
    cross = torch.from_numpy((features * weights[:, None]).T @ np.eye(10)[labels])
    held = torch.from_numpy(phi(config, server, setup, rows))
    losses, heavy = [], torch.from_numpy(server["head"]["weights"].numpy()[truth])
    for ridge in RIDGES:
        scores = held @ solve(gram, cross, ridge)
        logs = [(scores / t).log_softmax(1)[np.arange(len(truth)), truth] for t in TEMPERATURES]
        losses.append([-float((log * heavy).sum()) for log in logs])
    chosen, heat = np.unravel_index(np.argmin(losses), np.shape(losses))
    assert float(server["head"]["ridge"]) == RIDGES[chosen]
    assert float(server["head"]["temperature"]) == pytest.approx(TEMPERATURES[heat])


def test_rare_classes_weigh_as_much_as_others():
    config = resolve([CONFIG])
    server, setup = learned(config)
    counts = np.bincount(setup.dataset.y[np.concatenate(setup.federation.train)], minlength=10)
    np.testing.assert_allclose(server["head"]["counts"], counts)
    np.testing.assert_allclose(server["head"]["weights"].numpy() * counts, counts.sum() / 10)


def test_a_client_that_leaves_is_subtracted_exactly():
    """G and B of three clients are those of four minus the fourth's, to rounding."""
    config = resolve([CONFIG])
    server, setup = learned(config)
    from fedpn.federated.heads.ridge import gram_of
    from fedpn.federated.site import Site

    observe = setup.observer(config.method, server)
    head = make_head(config.head)
    each = [gram_of(head.features, Site(c, setup, 0, observe), server["head"]) for c in range(4)]
    whole = [sum(part) for part in zip(*each, strict=True)]
    without = [sum(part) for part in zip(*each[:3], strict=True)]
    for total, gone, rest in zip(whole, each[3], without, strict=True):
        torch.testing.assert_close(total - gone, rest, rtol=1e-9, atol=1e-9)


def test_triangles_are_packed_and_unpacked():
    square = torch.arange(49.0).reshape(7, 7)
    gram = square + square.T
    assert torch.equal(unpack(pack(gram)), gram)


def test_patches_against_a_plain_loop():
    """Contrast-normalised, filtered, thresholded and pooled, patch by patch."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (2, 3, 11, 9), generator=generator, dtype=torch.uint8)
    size = patches.patch_size(11, 9)
    filters = torch.randn(4, 3 * size * size, generator=generator)
    shift = torch.randn(4, generator=generator)
    ours = patches.pooled(x, filters, shift)
    image = x.double() / 255
    high, wide = 11 - size + 1, 9 - size + 1
    responses = torch.zeros(2, 4, high, wide, dtype=torch.float64)
    for i in range(high):
        for j in range(wide):
            patch = image[:, :, i : i + size, j : j + size].flatten(1)
            patch = patch - patch.mean(1, keepdim=True)
            patch = patch / (patch.square().mean(1, keepdim=True) + patches.EPSILON).sqrt()
            responses[:, :, i, j] = patch @ filters.double().T - shift.double()
    both = torch.cat([(responses - 0.25).clamp(min=0), (-responses - 0.25).clamp(min=0)], 1)
    theirs = torch.nn.functional.adaptive_avg_pool2d(both, 3).flatten(1)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4)


def test_filters_see_whitened_patches():
    """Responses to patches of the data have mean 0; strong directions do not drown weak ones."""
    setup = prepare(resolve([CONFIG]))
    x = setup.data.x[:500]
    moments = patches.moments(x)
    rng = torch.Generator().manual_seed(0)
    filters, shift = patches.draw_filters(moments, 400, rng)
    mean = moments.total / moments.rows
    torch.testing.assert_close(filters.double() @ mean, shift.double(), rtol=1e-4, atol=1e-5)
    covariance = moments.outer / moments.rows - torch.outer(mean, mean)
    variances = torch.einsum("mp,pq,mq->m", filters.double(), covariance, filters.double())
    assert variances.max() <= 1.0 + 1e-6


def test_a_robust_rule_is_refused_in_words():
    config = resolve([CONFIG, {"algorithm": "fedavg", "head": {"kind": "ridge"}, "rounds": 1}])
    from dataclasses import replace

    robust = replace(config, aggregation=replace(config.aggregation, rule="median"))
    with pytest.raises(UserError, match="the phase 'survey' sums other statistics"):
        phases_of(robust)


def test_tables_take_their_columns(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    x = rng.normal(size=(600, 4)) + np.eye(3, 4)[y] * 3
    lines = [",".join([*(f"{v:.5f}" for v in row), "abc"[k]]) for row, k in zip(x, y, strict=True)]
    path = tmp_path / "t.csv"
    path.write_text("p,q,r,s,label\n" + "\n".join(lines))
    config = resolve([CONFIG, {"dataset": str(path), "data": {"partition": "iid"}}])
    server, setup = learned(config)
    test = np.concatenate(setup.federation.test)
    scores = phi(config, server, setup, test) @ server["head"]["matrix"].double().numpy()
    assert (scores.argmax(1) == setup.dataset.y[test]).mean() > 0.85
    assert map_slots(torch.isfinite, {"head": server["head"]})["head"]["matrix"].all()


def test_a_setup_of_other_rows_can_be_assembled():
    config = resolve([CONFIG])
    dataset, federation = deal_rows(config, read(config, "digits"))
    assert assemble(config, dataset, federation).head is not None


def test_few_rows_of_many_columns_are_solved_by_their_rank(monkeypatch):
    rng = np.random.default_rng(0)
    phi = np.concatenate([rng.normal(size=(30, 200)), np.ones((30, 1))], 1)
    labels = np.eye(3)[rng.integers(0, 3, 30)]
    gram, cross = torch.from_numpy(phi.T @ phi), torch.from_numpy(phi.T @ labels)
    dense = sums.solve_each(gram, cross, RIDGES)
    monkeypatch.setattr(sums, "WIDE", 100)
    kept, by_rank = [], sums.low_rank
    monkeypatch.setattr(sums, "low_rank", lambda *a: kept.append(by_rank(*a)) or kept[-1])
    torch.testing.assert_close(sums.solve_each(gram, cross, RIDGES), dense, rtol=1e-9, atol=1e-12)
    assert kept[0].shape == (200, 29)
    theirs = make_pipeline(StandardScaler(), Reference(alpha=3.0)).fit(phi[:, :-1], labels)
    found = phi @ sums.solve(gram, cross, 3.0).numpy()
    np.testing.assert_allclose(found, theirs.predict(phi[:, :-1]), atol=1e-9)
    assert by_rank(torch.eye(9, dtype=torch.float64), 5) is None


def test_too_many_columns_are_refused_by_what_they_need(monkeypatch):
    settings = HeadSettings(kind="ridge", features="inputs", fourier=1000)
    sums.check_memory(settings, (8000,))
    monkeypatch.setattr(sums, "memory", lambda: 2 << 30)
    sums.check_memory(settings, (1, 28, 28))
    with pytest.raises(UserError, match=r"9001×9001 numbers, which need 3.0 GB .* has 2.0 GB"):
        sums.check_memory(settings, (8000,))
