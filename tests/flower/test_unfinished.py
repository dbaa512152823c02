"""A worker that died over a message: the next one tells who waits, and lives, whatever was left."""

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

from fedpn.flower.place import WORKER_SECRET, write_whole
from fedpn.flower.worker.__main__ import Worker
from fedpn.flower.worker.unfinished import Unfinished


@pytest.mark.parametrize("left", [b"", b"token", b"token\n", b"token\n\xff\xff no message", b"\n"])
def test_what_was_left_damaged_does_not_end_the_next_worker(left, tmp_path):
    (tmp_path / WORKER_SECRET).write_bytes(bytes(32))
    (tmp_path / "unfinished").write_bytes(left)
    Worker("127.0.0.1:1", tmp_path)._give_up()
    assert not (tmp_path / "unfinished").exists()


def test_it_is_kept_while_it_is_worked_on(tmp_path):
    unfinished = Unfinished(tmp_path / "unfinished")
    assert unfinished.read() is None
    unfinished.begin("token", b"a\nmessage")
    assert unfinished.read() == ("token", b"a\nmessage")
    unfinished.done()
    assert unfinished.read() is None


def test_a_draft_of_one_that_was_killed_is_in_nobodys_way(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 1)  # in a container, always
    (tmp_path / ".file.1").write_text("half")
    write_whole(tmp_path / "file", b"whole", 0o600)
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
