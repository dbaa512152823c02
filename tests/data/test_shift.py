"""Shifts made on purpose: only what was chosen changes, and by the seed."""

import numpy as np
import pytest

from fedpn.core.errors import UserError
from fedpn.data.shift import SHIFTS, invert, noisy_labels, rotate, shift_clients

LABELS = np.arange(10_000) % 10
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 5), dtype=np.uint8)


def test_the_papers_noise_mixes_half_of_the_classes():
    before = LABELS.copy()
    noisy = noisy_labels(LABELS, among=range(5, 10), seed=0)
    np.testing.assert_array_equal(LABELS, before)
    clean = LABELS < 5
    np.testing.assert_array_equal(noisy[clean], LABELS[clean])
    assert set(noisy[~clean]) == {5, 6, 7, 8, 9}
    for kind in range(5, 10):  # 1000 rows each: a fifth keeps its label by chance
        counts = np.bincount(noisy[kind == LABELS], minlength=10)[5:]
        assert counts.min() > 150
        assert counts.max() < 250


def test_noise_may_keep_to_a_share_and_to_rows():
    half = noisy_labels(LABELS, (0, 1), seed=0, share=0.5)
    assert 0.2 < np.mean(half[LABELS < 2] != LABELS[LABELS < 2]) < 0.3  # half of them, half changed
    some = noisy_labels(LABELS, (0, 1), seed=0, rows=np.arange(100))
    np.testing.assert_array_equal(some[100:], LABELS[100:])
    assert (some[:100] != LABELS[:100]).any()


def test_noise_is_decided_by_the_seed():
    first, again, other = (noisy_labels(LABELS, (3, 4), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("among", [(3,), (3, 3), (3, 12)])
def test_noise_among_what_is_not_there_is_refused(among):
    with pytest.raises(UserError, match="needs at least two, and each in the data"):
        noisy_labels(LABELS, among, seed=0)


def test_images_are_turned():
    rows = np.array([1, 3])
    turned = rotate(IMAGES, rows, quarters=1)
    np.testing.assert_array_equal(turned[[0, 2]], IMAGES[[0, 2]])
    np.testing.assert_array_equal(turned[1, 2], np.rot90(IMAGES[1, 2]))
    np.testing.assert_array_equal(rotate(turned, rows, quarters=3), IMAGES)


def test_long_images_turn_by_half_only():
    long = IMAGES[:, :, :3]
    np.testing.assert_array_equal(rotate(long, np.array([0]), 2)[0], long[0, :, ::-1, ::-1])
    with pytest.raises(UserError, match="images of 5×3 cannot be turned by 90°"):
        rotate(long, np.array([0]), 1)


def test_images_are_inverted():
    rows = np.array([0])
    inverted = invert(IMAGES, rows)
    np.testing.assert_array_equal(inverted[0].astype(int) + IMAGES[0], 255)
    np.testing.assert_array_equal(inverted[1:], IMAGES[1:])
    np.testing.assert_array_equal(invert(inverted, rows), IMAGES)


def test_clients_have_pictures_of_four_kinds():
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)
    owned = list(np.arange(40).reshape(5, 8))
    shifted = shift_clients(images, owned, 0, "pictures")
    assert shifted.dtype == np.uint8
    for client, rows in enumerate(owned):
        same = [
            images[rows],
            255 - images[rows],
            np.rot90(images[rows], 1, axes=(2, 3)),
        ]
        if client % 4 < 3:
            assert np.array_equal(shifted[rows], same[client % 4])
    assert shifted[owned[3]].mean() == pytest.approx(images[owned[3]].mean() / 2, abs=8)
    with pytest.raises(UserError, match="a table"):
        shift_clients(np.zeros((4, 3)), [np.arange(4)], 0, "rotate")


def test_one_way_at_a_time():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 1, 6, 6)).astype(np.uint8)
    owned = np.array_split(np.arange(40), 5)
    shifted = {kind: shift_clients(images, owned, 0, kind) for kind in SHIFTS}
    for kind, found in shifted.items():
        assert found.dtype == images.dtype and np.array_equal(found[owned[0]], images[owned[0]]), (
            kind
        )
    assert np.array_equal(shifted["invert"][owned[3]], 255 - images[owned[3]])
    assert np.array_equal(shifted["invert"][owned[2]], images[owned[2]])
    turned = np.rot90(images[owned[3]], 3, axes=(2, 3))
    assert np.array_equal(shifted["rotate"][owned[3]], turned)
    assert np.array_equal(shifted["rotate"][owned[4]], images[owned[4]])

    def off(kind, client):
        return np.abs(shifted[kind][owned[client]].astype(float) - images[owned[client]]).mean()

    for kind in ("noise", "blur"):
        assert 0 < off(kind, 1) < off(kind, 4)
    # A blurred picture is the mean of its neighbours: less spread, the same level.
    last = owned[4]
    assert shifted["blur"][last].std() < 0.5 * images[last].std()
    assert abs(shifted["blur"][last].mean() - images[last].mean()) < 3
