"""Shared by all tests: one thread each, the digits federation, a finished run."""

import os
from pathlib import Path

import pytest
import torch

import fedpn
import own_method
from pages import CHROMIUM, OPTIONS

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the programs that tests start, too

QUICK = {
    "dataset": "digits",
    "algorithm": "fedpn",
    "rounds": 2,
    "clients": 4,
    "train__steps": 2,
    "method__adapt_epochs": 1,
    "method__adapt_steps": 4,
}


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory) -> Path:
    """A finished FedPN run on digits: far from trained, but whole."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    fedpn.run(out, **QUICK)
    return out


@pytest.fixture(scope="session")
def closed_form_run(tmp_path_factory) -> Path:
    """A finished run of three clients with digits: a closed-form head, Bayes' rule, and a gate."""
    out = tmp_path_factory.mktemp("closed") / "run"
    fedpn.run(out, dataset="digits", algorithm="analytic", clients=3, head__filters=10)
    return out


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The working directory, with a method of one's own; it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    own_method.write(tmp_path)
    yield tmp_path
    own_method.forgotten()


@pytest.fixture(scope="module")
def browser():
    """A real browser, or a skip that says what is missing."""
    play = pytest.importorskip("playwright.sync_api", reason="tests of pages need playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with play.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=str(CHROMIUM), args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def real_data():
    """The directory of real datasets, or a skip that says how to have them."""
    place = os.environ.get("FEDPN_DATA", "")
    if not place or not Path(place, "mnist.npz").exists():
        pytest.skip("set FEDPN_DATA to a directory with mnist.npz to run this test")
    return Path(place)
