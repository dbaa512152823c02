"""Shared by tests of Flower: nobody waits, and children hear a Ctrl-C."""

import signal

import pytest


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    roster = pytest.importorskip("fedpn.flower.app.roster", reason="flwr is not installed")
    monkeypatch.setattr(roster, "PAUSE", 0.01)


@pytest.fixture
def interruptible():
    """Of one who runs the tests in the background, children would not hear a Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
