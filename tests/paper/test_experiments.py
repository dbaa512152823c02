"""The figures: the contract of all, and each one's numbers against something else."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from scipy.special import digamma
from sklearn.neighbors import NearestNeighbors

import fedpn_paper as experiments
from fedpn.cli.main import main
from fedpn.core import dirichlet, store
from fedpn.core.dirichlet import Posterior
from fedpn.data.sources.datasets import load
from fedpn.federated.listener import Listener, Stopped
from fedpn.routing.opinion import of_posterior
from fedpn.routing.rules import threshold
from fedpn.routing.scores import POSTERIOR_SCORES
from fedpn_paper import (
    landscape,
    noise,
    noisy,
    overhead,
    refusal,
    scenes,
    scores,
    stopgrad,
    strangers,
    toy,
)
from fedpn_paper.figure import Settings, typeset
from fedpn_paper.opened import open_run
from fedpn_paper.score_names import short


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the small federations of all experiments lie."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def played(home):
    """Plays experiments, each once."""
    results = {}

    def play(name):
        if name not in results:
            settings = Settings(quick=True, home=home)
            results[name] = experiments.play(name, home / name, settings)
        return results[name]

    return play


@pytest.fixture(scope="module")
def opened(home, played):
    """The small federation that threshold, scores and strangers share."""
    played("threshold")
    return open_run(home / "quick" / "runs" / "digits-fedpn-s0")


@pytest.fixture(scope="module")
def first_scene(opened):
    return next(scenes.scenes(opened))


def mann_whitney(known, unknown):
    return stats.mannwhitneyu(unknown, known).statistic / (len(known) * len(unknown))


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_the_contract(name, home, played, monkeypatch):
    result = played(name)
    module, out = experiments.find(name), home / name
    assert json.loads((out / "result.json").read_text()) == result
    quick = result["settings"]["quick"]
    assert (result["title"] == module.TITLE) != quick, "a quick look does not show what it says"
    assert result["text"] == typeset(module.say(result))
    assert len(result["text"].split()) > 30
    assert result["settings"] == {"seeds": [0], "rounds": None, "quick": True}
    assert all(set(about) >= {"name", "note"} for about in result["data"])
    svg = (out / "figure.svg").read_text()
    assert "currentColor" in svg
    assert "#111111" not in svg
    assert "/tmp" not in svg
    assert len(svg) < 300_000
    assert (out / "result.json").stat().st_size < 300_000
    picture = Image.open(out / "figure.png").convert("RGB")
    assert picture.getpixel((0, 0)) == (255, 255, 255)
    monkeypatch.setattr(module, "run", None)  # what is finished is not computed again
    assert experiments.play(name, out, Settings(quick=True)) == result


def test_the_table_names_every_experiment(capsys):
    assert main(["experiment"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split()[0] for line in lines] == list(experiments.EXPERIMENTS)


def test_the_command(tmp_path, capsys):
    out = tmp_path / "figure"
    assert main(["experiment", "landscape", "--quick", "--seeds", "2", "--out", str(out)]) == 0
    assert "The loss over the density" in capsys.readouterr().out
    assert store.read_json(out / "result.json")["settings"]["seeds"] == [0, 1]
    assert main(["experiment", "landscape", "--out", str(out)]) == 2
    assert "add --resume" in capsys.readouterr().err
    again = ["experiment", "landscape", "--quick", "--out", str(out), "--resume"]
    assert main([*again, "--seeds", "3"]) == 0
    assert store.read_json(out / "result.json")["settings"]["seeds"] == [0, 1, 2]
    assert main([*again, "--seed", "7"]) == 2
    assert "has the seeds [0, 1, 2], not [7]" in capsys.readouterr().err
    (out / "figure.svg").unlink()
    assert main(["experiment", "landscape", "--redraw", "--out", str(out)]) == 0
    assert (out / "figure.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "choose one of landscape, toy"),
        (["toy", "--seeds", "0"], "--seeds is 0, but must be at least 1"),
        (["toy", "--seed", "-1"], "--seed is -1"),
        (["toy", "--rounds", "0"], "--rounds is 0"),
        (["toy", "--seed", "1", "--seeds", "2"], "not allowed with"),
        (["threshold"], "none of mnist, fashionmnist, organamnist is at hand"),
    ],
)
def test_mistakes(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDPN_DATA", "")
    assert main(["experiment", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_landscape_by_scipy_and_finite_differences():
    p = np.logspace(-2, 4, 40)
    for f in (0.01, 0.1, 0.9):
        args = torch.from_numpy(p), torch.tensor(f, dtype=torch.float64), 10
        loss = digamma(10 + p) - digamma(1 + p * f)
        np.testing.assert_allclose(landscape.exact(*args), loss, rtol=1e-9)
        np.testing.assert_allclose(
            landscape.rough(*args), np.log(10 + p) - np.log(1 + p * f), rtol=1e-12
        )
        step = 1e-5
        for value, slope in (
            (landscape.exact, landscape.exact_slope),
            (landscape.rough, landscape.rough_slope),
        ):
            up, down = (value(args[0] * math.exp(s), *args[1:]) for s in (step, -step))
            np.testing.assert_allclose(slope(*args), (up - down) / (2 * step), atol=1e-7)
    even = landscape.rough(torch.from_numpy(p), torch.tensor(0.1, dtype=torch.float64), 10)
    np.testing.assert_allclose(even, math.log(10), rtol=1e-12)


@pytest.mark.parametrize("classes", [3, 10, 200])
def test_where_the_landscape_turns(classes):
    p = torch.tensor([1e-6, 1.0, 1e7], dtype=torch.float64)
    turn = landscape.turning(p, classes)
    assert (landscape.exact_slope(p, turn * 0.99, classes) > 0).all()
    assert (landscape.exact_slope(p, turn * 1.01, classes) < 0).all()
    assert float(turn[-1]) == pytest.approx(1 / (2 * classes - 1), rel=1e-4)


@pytest.mark.parametrize("middle", toy.MIDDLES.values())
def test_the_true_density_of_the_toy(middle):
    z = np.random.default_rng(0).uniform(-1.5, 1.5, (50, 2))
    parts = [stats.multivariate_normal(centre, 0.01).pdf(z) for centre in ((-1, 0), middle, (1, 0))]
    np.testing.assert_allclose(toy.true_density(middle, z), np.mean(parts, 0), rtol=1e-9)


def test_the_toy_tells_the_truth_at_the_centre_and_over_rows(played):
    result = played("toy")
    rows, _ = toy.sample((0.0, 1.0), 5, (7,))
    own = np.log(toy.true_density((0.0, 1.0), rows[toy.ROWS : 2 * toy.ROWS]))
    assert result["true"]["text"]["centre"] == pytest.approx(math.log(1 / (0.06 * math.pi)), 1e-4)
    assert result["true"]["text"]["rows"] == pytest.approx(np.median(own), abs=0.15)


def test_the_toy_clusters():
    x, y = toy.sample((0.0, 1.0), 7, (0,))
    parts = np.split(x, 3)
    np.testing.assert_allclose([p.mean(0) for p in parts], [(-1, 0), (0, 1), (1, 0)], atol=0.02)
    np.testing.assert_allclose([p.std() for p in np.split(x, 3)][::2], [0.51, 0.51], atol=0.02)
    left, middle, right = np.split(y, 3)
    assert set(left) == {0}
    assert set(right) == {6}
    assert set(middle) == set(range(7))


def test_labels_reach_the_toy_density_through_the_original_loss_alone():
    z = np.array([[0.0, 1.0]])
    found = {
        (loss, k): toy.log_density(toy.train(loss, (0.0, 1.0), k, 30, [(0, 0)]), z)
        for loss in ("bayesian", "repaired")
        for k in (3, 50)
    }
    torch.testing.assert_close(found["repaired", 3], found["repaired", 50], rtol=1e-4, atol=1e-4)
    assert (found["bayesian", 3] - found["bayesian", 50]).abs() > 0.05


def test_noise_is_among_the_noisy_classes_and_dealt_by_what_it_says():
    config = stopgrad.settings_of(Settings(quick=True), seed=0, loss="repaired")
    setup, before = noise.prepare_noisy(config)
    after, chosen = setup.dataset.y, np.isin(before, noise.NOISY)
    np.testing.assert_array_equal(before, load("digits").y)
    np.testing.assert_array_equal(after[~chosen], before[~chosen])
    assert set(after[chosen]) == set(noise.NOISY)
    assert (after[chosen] != before[chosen]).mean() == pytest.approx(0.8, abs=0.06)
    assert max(len(set(after[rows])) for rows in setup.federation.train) <= 3
    assert config.method.loss == "repaired"


def test_noise_after_dealing_leaves_whole_classes_to_each():
    config = noisy.settings_of(Settings(quick=True), seed=0, part="clients")
    setup, before = noise.prepare_noisy(config, dealt_first=True)
    after, rows = setup.dataset.y, setup.federation.train
    assert max(len(set(before[mine])) for mine in rows) <= 3
    assert max(len(set(after[mine])) for mine in rows) > 3
    assert np.isin(before[after >= 5], noise.NOISY).all()


def test_the_measures_of_noise():
    rng = torch.Generator().manual_seed(0)
    alpha = 1 + 20 * torch.rand(60, 10, generator=rng)
    log_p = torch.randn(60, generator=rng)
    dark = np.arange(60) >= 25
    opinion = of_posterior(Posterior(alpha, log_p, log_p, alpha), alpha, alpha)
    held = noise.Held(opinion, dark, alpha.argmax(-1).numpy())
    by_noise = noisy.measure([held])
    entropies = np.array(
        [(-(m * np.log(m)).sum(-1)).mean() for m in _draws(alpha.double().numpy())]
    )
    expected = mann_whitney(entropies[~dark], entropies[dark])
    assert by_noise["auroc"]["aleatoric"] == pytest.approx(expected, abs=0.02)
    density = mann_whitney(-log_p.numpy()[~dark], -log_p.numpy()[dark])
    assert by_noise["auroc"]["epistemic"] == pytest.approx(density)
    assert by_noise["clean_accuracy"] == 1
    own = held._replace(noisy=~dark)
    opposite = noisy.measure([held, own])["auroc"]  # within each model, then their mean
    assert opposite["epistemic"] == pytest.approx(0.5)
    both = stopgrad.measure(held)
    assert both["auroc"] == pytest.approx(density)
    assert both["median"]["noisy"] == pytest.approx(np.median(log_p.numpy()[dark]), abs=0.1)


def _draws(alpha):
    rng = np.random.default_rng(0)
    return (rng.dirichlet(a, 4000) for a in alpha)


def test_parameters_by_hand():
    lenet = 6 * 26 + 16 * (6 * 25 + 1) + 257 * 120 + 121 * 84 + 85 * 16
    counts = overhead.count(overhead.FULL[0])
    assert counts == {"encoder": lenet, "head": 17 * 48 + 49 * 10, "flows": 10 * 30 * (16 + 2)}


def test_works_are_timed_in_turns():
    order = []
    works = {name: (lambda name=name: order.append(name)) for name in "ab"}
    seconds = overhead.alternate(works, repeats=3)
    assert "".join(order) == "abababab"
    assert {name: len(column) for name, column in seconds.items()} == {"a": 3, "b": 3}
    assert overhead._share([1.0, 1.0], [2.0, 4.0])["median"] == pytest.approx(0.625)


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


def test_a_stopped_experiment_goes_on(tmp_path):
    asked, listener = iter([False, True]), Listener()
    listener.stopping = lambda: next(asked)
    settings = Settings(quick=True, rounds=4)
    with pytest.raises(Stopped):
        experiments.play("noisy", tmp_path / "a", settings, listener)
    went_on = experiments.play("noisy", tmp_path / "a", settings)
    assert went_on == experiments.play("noisy", tmp_path / "b", settings)
