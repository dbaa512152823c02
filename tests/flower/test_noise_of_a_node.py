"""Noise of a node's own: how far a move is cut, and how much is added to it."""

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

from fedpn.core.errors import UserError
from fedpn.flower.app.noise import noised

SENT = {"model": {"w": torch.ones(200, 100), "steps": torch.tensor(3)}}


def moved(by):
    return {"model": {"w": SENT["model"]["w"] + by, "steps": torch.tensor(4)}}


def test_a_move_is_cut_and_short_ones_are_not():
    long = noised(SENT, moved(5.0), clip=2.0, noise=0.0, key=b"1")["model"]["w"] - 1
    assert float(long.norm()) == pytest.approx(2.0, rel=1e-4)
    short = noised(SENT, moved(1e-3), clip=2.0, noise=0.0, key=b"1")["model"]["w"] - 1
    torch.testing.assert_close(short, torch.full((200, 100), 1e-3), rtol=0.01, atol=1e-7)


def test_noise_is_gaussian_of_the_length_that_was_asked_for_and_that_of_its_key():
    keys = (b"1", b"2", b"1")
    first, second, again = (noised(SENT, moved(0.0), 2.0, 0.5, key)["model"] for key in keys)
    drawn = (first["w"] - 1).double()
    assert float(drawn.std()) == pytest.approx(0.5 * 2.0, rel=0.03)
    assert abs(float(drawn.mean())) < 0.04
    within = float((drawn.abs() < 1).double().mean())
    assert within == pytest.approx(0.6827, abs=0.02)
    assert not torch.equal(first["w"], second["w"]) and torch.equal(first["w"], again["w"])
    assert int(first["steps"]) == 3  # as it was sent: what carries no noise tells nothing


def test_what_noise_does_not_cover_is_not_sent():
    with pytest.raises(UserError, match="covers a model alone"):
        noised(SENT, moved(0.0) | {"momentum": {}}, 1.0, 1.0, b"1")
