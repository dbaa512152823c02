"""Memories: read what was written, come back to the checkpoint, cost nothing when idle."""

import pytest
import torch

from fedpn.core.store import Damaged
from fedpn.federated.memories import Memories


def enroll(client):
    return {
        "model": {"w": torch.full((2, 3), float(client))},
        "empty": {},
        "n": {"t": torch.tensor(1)},
    }


@pytest.fixture(params=["file", "ram"])
def memories(request, tmp_path):
    return Memories(enroll, 4, tmp_path / "memories.bin" if request.param == "file" else None)


def test_reads_what_was_written(memories):
    assert memories[3]["model"]["w"].tolist() == [[3.0] * 3] * 2
    new = {
        "model": {"w": torch.arange(6.0).reshape(2, 3)},
        "empty": {},
        "n": {"t": torch.tensor(7)},
    }
    memories[3] = new
    assert memories[3]["model"]["w"].equal(new["model"]["w"])
    assert memories[3]["n"]["t"].item() == 7
    assert memories[3].keys() == new.keys()
    assert memories[2]["model"]["w"].tolist() == [[2.0] * 3] * 2


def test_what_is_read_is_not_changed_by_what_is_written(memories):
    memories[0] = enroll(5)
    read = memories[0]
    memories[0] = enroll(6)
    assert read["model"]["w"][0, 0] == 5


def test_a_killed_run_finds_its_checkpoint(tmp_path):
    path = tmp_path / "memories.bin"
    first = Memories(enroll, 4, path)
    first[0], first[1] = enroll(10), enroll(11)
    saved = first.save()
    first[0] = enroll(20)
    first[0] = enroll(30)  # twice since the checkpoint
    first[2] = enroll(22)  # joined since the checkpoint
    del first
    again = Memories(enroll, 4, path)
    again.restore(saved)
    assert [again[c]["model"]["w"][0, 0].item() for c in range(4)] == [10, 11, 2, 3]
    again[0] = enroll(40)
    again.save()
    again[0] = enroll(50)
    assert again[0]["model"]["w"][0, 0] == 50


def test_the_file_is_sparse(tmp_path):
    path = tmp_path / "memories.bin"
    big = Memories(lambda c: {"model": {"w": torch.zeros(100_000)}}, 1000, path)
    big[500] = {"model": {"w": torch.ones(100_000)}}
    big.save()
    assert path.stat().st_size > 500 * 400_000
    assert path.stat().st_blocks * 512 < 2_000_000


def test_a_flipped_bit_is_noticed_and_named(tmp_path):
    path = tmp_path / "memories.bin"
    first = Memories(enroll, 4, path)
    first[1] = enroll(11)
    saved = first.save()
    content = bytearray(path.read_bytes())
    content[first.size + 3] ^= 1  # of client 1's first record
    path.write_bytes(content)
    with pytest.raises(Damaged, match="what client 1 remembers is lost"):
        Memories(enroll, 4, path).restore(saved)


def test_the_checkpoint_before_the_last_is_still_whole(tmp_path):
    path = tmp_path / "memories.bin"
    first = Memories(enroll, 4, path)
    kept = []
    for value in (10, 20, 30):
        first[0] = enroll(value)
        kept.append(first.save())
    first[0] = enroll(40)  # after the last checkpoint
    for saved, value in ((kept[1], 20), (kept[2], 30)):
        again = Memories(enroll, 4, path)
        again.restore(saved)
        assert again[0]["model"]["w"][0, 0] == value
