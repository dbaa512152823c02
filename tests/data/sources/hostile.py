"""What the tests of hostile files share: the doors they come to, and what a refusal is."""

import signal

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.sources.own import load_own
from fedpn.serving.inputs import read_inputs

IMAGES = np.arange(6 * 8 * 8, dtype=np.uint8).reshape(6, 8, 8)
LABELS = np.array([0, 1, 2, 0, 1, 2])
FEATURES = np.arange(12.0).reshape(6, 2)
DOORS = {
    "train": load_own,
    "predict": lambda path: read_inputs(path, (1, 8, 8)),
}
TABLE_DOORS = {
    "train": load_own,
    "predict": lambda path: read_inputs(path, (2,), ("a", "b")),
}
doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
table_doors = pytest.mark.parametrize("door", TABLE_DOORS.values(), ids=TABLE_DOORS)


@pytest.fixture(autouse=True)
def at_once():
    """Nothing hangs."""

    def late(*_):
        raise AssertionError("it hangs")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def refused(door, path, words):
    """One sentence that names the file."""
    with pytest.raises(UserError, match=words) as caught:
        door(path)
    told = str(caught.value)
    assert path.name in told
    assert "\n" not in told
    assert len(told) < 800


def cut_and_damaged(door, path, words, step, times):
    """A file that ends early is refused; one with a wrong byte is read, or refused."""
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for cut in range(1, len(whole), step):
        path.write_bytes(whole[:cut])
        refused(door, path, words)
    for _ in range(times):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            door(path)
        except UserError as error:
            assert "\n" not in str(error)
