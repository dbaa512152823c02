"""What a new user once saw go wrong, at the settings that such a user has."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedpn
from fedpn.cli.main import main
from fedpn.core import metrics
from fedpn.data.sources import datasets
from fedpn.federated.heads import sums
from fedpn.runs.config import resolve
from fedpn.runs.prepare import deal_rows

QUICK = {"fedpn__adapt_steps": 100, "fedpn__adapt_epochs": 0, "train__steps": 5}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    out = tmp_path_factory.mktemp("digits") / "run"
    fedpn.run(out, dataset="digits", clients=6, rounds=8, **QUICK)
    return out


def needs_chest():
    if datasets.find("pneumoniamnist") is None:
        pytest.skip("pneumoniamnist is not at hand; point FEDPN_DATA to its archive")


def test_a_model_of_chest_x_rays_answers_neither_noise_nor_black(tmp_path):
    needs_chest()
    fedpn.run(tmp_path / "run", dataset="pneumoniamnist", clients=4, rounds=3, **QUICK)
    noise = np.random.default_rng(0).integers(0, 256, (300, 28, 28)).astype(np.uint8)
    for strange in (noise, np.zeros((20, 28, 28), np.uint8)):
        for client in ("0", "3"):
            answers = fedpn.load(tmp_path / "run", client)(strange)
            assert {answer.source for answer in answers} == {"nobody"}
            assert not any("familiar" in answer.reason for answer in answers)


def test_a_model_of_digits_answers_no_chest_x_ray(digits):
    needs_chest()
    chest = datasets.load("pneumoniamnist").x[:500]
    answered = [a for a in fedpn.load(digits, "0")(chest) if a.label is not None]
    assert len(answered) <= 25


def test_a_limit_that_cannot_bind_is_named(tmp_path):
    """Two classes that nothing tells apart: doubt is ln 2 wherever one looks."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", x=rng.normal(size=(400, 3)), y=rng.integers(0, 2, 400))
    switch = {"routing__rule": "quantiles", "data__partition": "iid"}
    found = fedpn.run(
        tmp_path / "run", dataset=str(tmp_path / "t.npz"), clients=3, rounds=1, **QUICK, **switch
    )
    assert any("as doubtful as can be" in warning for warning in found["warnings"])


def test_a_small_site_takes_part_and_is_named(tmp_path):
    """Of four sites one has 29 rows: it borrows the federation's limits."""
    rng = np.random.default_rng(0)
    site = np.repeat([0, 1, 2, 3], [300, 300, 300, 29])
    y = rng.integers(0, 2, len(site))
    lines = ["a,b,label,client"]
    for s, label in zip(site, y, strict=True):
        a, b = rng.normal(size=2) + label
        lines.append(f"{a:.3f},{b:.3f},{label},site{s}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    found = fedpn.run(tmp_path / "run", dataset=str(tmp_path / "t.csv"), algorithm="analytic")
    assert any("site3: too few rows for limits of its own" in w for w in found["warnings"])
    assert len(fedpn.load(tmp_path / "run", "site3")(np.zeros((3, 2)))) == 3


def imbalanced(seed=0, rows=5000):
    """A table of ten columns with 6 % positives, dealt to four clients."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 10)).astype(np.float32)
    latent = x @ rng.normal(size=10) * 0.35 + rng.logistic(size=rows)
    return x, (latent > np.quantile(latent, 0.94)).astype(np.int64), rng.integers(0, 4, rows)


@pytest.mark.slow
def test_rare_positives_are_ranked_as_well_as_by_logistic_regression(tmp_path):
    """In closed form, within 0.03 of it on pooled rows; that all is answered "no" is said."""
    x, y, client = imbalanced()
    np.savez(tmp_path / "t.npz", x=x, y=y, client=client)
    spec = str(tmp_path / "t.npz")
    found = fedpn.run(tmp_path / "run", dataset=spec, algorithm="analytic")
    _, federation = deal_rows(resolve([{"dataset": spec}]), fedpn.open_dataset(spec))
    train = np.concatenate(federation.train)
    fitted = LogisticRegression().fit(x[train], y[train])
    each = [roc_auc_score(y[t], fitted.predict_proba(x[t])[:, 1]) for t in federation.test]
    assert found["classes_found"]["auroc"] > np.mean(each) - 0.03
    assert any("rare classes" in warning for warning in found["warnings"])
    point = {"routing__operating_point": "balanced"}
    found = fedpn.run(tmp_path / "found", dataset=spec, algorithm="analytic", **point)
    assert found["by_class"]["recall"][1] > 0.4 > 0.1 > found["by_class"]["precision"][1] - 0.1


def test_of_very_many_classes_no_table_is_made_and_a_head_is_chosen_by_a_sample(
    tmp_path, monkeypatch, capsys
):
    """5,000 classes at 20 clients took 8 GB for tables that nobody reads, and minutes a client."""
    monkeypatch.setattr(metrics, "TABULATED", 6)
    monkeypatch.setattr(sums, "ENOUGH", 300)
    out = tmp_path / "run"
    found = fedpn.run(out, dataset="digits", algorithm="analytic", clients=3, head__filters=10)
    assert "by_class" not in found.metrics
    assert any("10 classes, of which no table is made" in text for text in found["warnings"])
    assert found["accuracy"]["bayes"]["mix"] > 0.8
    digits = fedpn.open_dataset("digits")
    np.savez(tmp_path / "rows.npz", images=digits.x[:90, 0], labels=digits.y[:90])
    assert main(["score", str(out), str(tmp_path / "rows.npz"), "--client", "1"]) == 0
    assert "class\trows" not in capsys.readouterr().out
    assert main(["report", str(out)]) == 0
