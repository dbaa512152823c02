"""Two threads that play different clients must give what one gives."""

import threading

import pytest
import torch

import settings
from fedpn.algorithms import ALGORITHMS
from fedpn.core import parallel as workers
from fedpn.core.parallel import lanes, side_by_side
from settings import setting


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_parts_are_played_at_once_and_told_in_order(two_threads):
    meet = threading.Barrier(2, timeout=120)  # broken unless both are under way

    def play(part):
        meet.wait()
        return part, torch.get_num_threads()

    assert list(side_by_side(play, [3, 1, 2, 0], 2)) == [(3, 1), (1, 1), (2, 1), (0, 1)]
    assert torch.get_num_threads() == 2


def test_a_failure_in_a_thread_is_the_callers(two_threads):
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda part: 1 // part, [1, 0], 2))


def test_one_core_or_a_gpu_needs_no_threads(monkeypatch):
    assert lanes(torch.device("cuda")) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert lanes(torch.device("cpu")) == 1
    monkeypatch.setattr(workers, "_pool", None)
    assert list(side_by_side(lambda part: part, [1, 2], 1)) == [1, 2]


@pytest.mark.parametrize("name", ["fedpn", "ditto"])
def test_two_threads_agree_with_one_however_often_they_meet(name, two_threads):
    """`functional_call` lends parameters to modules: a shared one would mix clients up."""
    method = ALGORITHMS[name]()
    setup = setting(method.network, norm=True)

    def play():
        played = settings.play(method, setup)
        return played.server, [played.memories[c] for c in range(len(settings.SIZES))]

    first = play()
    for _ in range(3):
        torch.testing.assert_close(play(), first, rtol=0, atol=0)
    torch.set_num_threads(1)
    torch.testing.assert_close(first, play(), rtol=1e-9, atol=1e-9)
