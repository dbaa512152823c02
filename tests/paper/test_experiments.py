"""The figures: the contract of all, and each one's numbers against something else."""

import json
import math

import numpy as np
import pytest
import torch
from paper_oracles import mann_whitney
from PIL import Image
from scipy import stats
from scipy.special import digamma

import fedpn_paper as experiments
from fedpn.cli.main import main
from fedpn.core import store
from fedpn.core.dirichlet import Posterior
from fedpn.data.sources.datasets import load
from fedpn.federated.listener import Listener, Stopped
from fedpn.routing.opinion import of_posterior
from fedpn_paper import (
    landscape,
    noise,
    noisy,
    overhead,
    stopgrad,
    toy,
)
from fedpn_paper.figure import Settings, typeset


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


def test_a_stopped_experiment_goes_on(tmp_path):
    asked, listener = iter([False, True]), Listener()
    listener.stopping = lambda: next(asked)
    settings = Settings(quick=True, rounds=4)
    with pytest.raises(Stopped):
        experiments.play("noisy", tmp_path / "a", settings, listener)
    went_on = experiments.play("noisy", tmp_path / "a", settings)
    assert went_on == experiments.play("noisy", tmp_path / "b", settings)
