"""What a fine accuracy may hide is said: a collapsed model, rare classes that nobody finds."""

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from fedpn.core import metrics, store
from fedpn.reporting import report
from fedpn.runs import pipeline
from fedpn.runs.config import resolve
from fedpn.runs.measure import warnings_of

FINE = {"balanced_accuracy": 0.9, "majority_share": 0.5, "always_the_same": 0.5}


@pytest.mark.parametrize(
    ("right", "found", "words"),
    [
        (0.9, {}, []),
        (0.94, {"majority_share": 0.94, "always_the_same": 1.0}, ["collapsed", "rare classes"]),
        (0.94, {"majority_share": 0.94, "always_the_same": 0.9}, ["rare classes"]),
        (1.0, {"majority_share": 1.0, "always_the_same": 1.0}, ["rare classes"]),
    ],
)
def test_warnings(right, found, words):
    said = warnings_of({"mix": None, "ind": right}, FINE | found)
    assert len(said) == len(words)
    assert all(word in text for word, text in zip(words, said, strict=True))


def test_balanced_accuracy_is_scikit_learns():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (200,), generator=generator).clamp(max=2)
    guess = torch.randint(0, 3, (200,), generator=generator)
    expected = balanced_accuracy_score(labels, guess)
    assert metrics.balanced_accuracy(guess, labels) == pytest.approx(expected)
    assert metrics.majority_share(labels) == pytest.approx(
        float(torch.bincount(labels).max()) / 200
    )


def test_a_run_that_learned_nothing_says_so_everywhere(tmp_path):
    config = {"algorithm": "fedavg", "clients": 3, "rounds": 1, "train": {"steps": 1}}
    found = pipeline.run(resolve([config, {"method": {"lr": 1e-9}}]), tmp_path / "run")
    assert found["warnings"]
    assert store.read_json(tmp_path / "run/metrics.json")["warnings"] == found["warnings"]
    assert f"note: {found['warnings'][0]}" in report.text([tmp_path / "run"])
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert found["warnings"][0][:12] in page.replace("\u00a0", " ").replace("&nbsp;", " ")
