"""Files are replaced whole or not at all."""

import pytest

from fedpn.core import store
from fedpn.core.errors import UserError


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    store.write_json(path, {"old": 1})

    def half(temporary):
        temporary.write_text("{")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left"):
        store._replace(path, half)
    assert store.read_json(path) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_changed_file_is_noticed(tmp_path):
    store.write_json(tmp_path / "a.json", {"x": 1})
    store.seal(tmp_path)
    store.verify(tmp_path, ["a.json"])
    store.write_json(tmp_path / "a.json", {"x": 2})
    with pytest.raises(UserError, match="its checksum is not"):
        store.verify(tmp_path, ["a.json"])
