"""Experiments at small size, each played once for all tests."""

import pytest

import fedpn_paper as experiments
from fedpn_paper.figure import Settings


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Where the small federations of all experiments lie."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="session")
def played(home):
    """Plays experiments, each once."""
    results = {}

    def play(name):
        if name not in results:
            settings = Settings(quick=True, home=home)
            results[name] = experiments.play(name, home / name, settings)
        return results[name]

    return play
