"""Files are replaced whole or not at all; folders are one run's; damage is told from absence."""

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
import torch

from fedpn.core import store, tensors
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


def test_what_was_read_stays_though_the_file_be_written_over(tmp_path):
    path, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
    store.write_tensors(path, {"w": torch.zeros(5000)})
    store.write_tensors(other, {"w": torch.ones(5000)})
    tensors, _ = store.read_tensors(path)
    path.write_bytes(other.read_bytes())  # in place, as `cp` does
    assert not tensors["w"].any()


def test_a_seal_is_of_files_that_a_run_writes_and_not_of_itself(tmp_path):
    for name in ("b.toml", "a.json", "memories.bin", "page.html"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        store.seal(tmp_path)
    sums = json.loads((tmp_path / store.MANIFEST).read_text())
    assert list(sums) == ["a.json", "b.toml", "page.html"]
    assert sums["a.json"] == hashlib.sha256(b"a.json").hexdigest()
    (tmp_path / "b.toml").unlink()
    with pytest.raises(UserError, match=r"not a finished run: b.toml is missing") as caught:
        store.verify(tmp_path, ["a.json", "b.toml"])
    assert not isinstance(caught.value, store.Damaged)
    with pytest.raises(store.Damaged, match=r"memories.bin is damaged or was changed"):
        store.verify(tmp_path, ["memories.bin"])


def test_claims(tmp_path):
    store.claim(tmp_path / "new" / "deep")
    assert (tmp_path / "new" / "deep").is_dir()
    store.claim(tmp_path / "new" / "deep")  # nothing is in it yet
    with pytest.raises(UserError, match=r"new is not empty; choose another, or --resume"):
        store.claim(tmp_path / "new")
    with pytest.raises(UserError, match=r"choose another$"), store.drafted(tmp_path / "new"):
        pass
    with pytest.raises(UserError, match="holds no run"):
        store.claim(tmp_path / "new", resume=True)
    (tmp_path / "new" / "config.toml").touch()
    store.claim(tmp_path / "new", resume=True)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"file is a file, not a directory"):
            store.claim(path)
    with pytest.raises(UserError, match=r"--pages .* cannot be made: Not a directory"):
        store.make_folder(tmp_path / "file" / "below", "--pages")


def test_a_claimed_folder_names_its_holder_and_is_free_afterwards(tmp_path):
    (tmp_path / "config.toml").touch()
    (tmp_path / store.LOCK).write_text("4194304\n" * 9)  # of one that was killed
    with store.claimed(tmp_path, resume=True):
        assert (tmp_path / store.LOCK).read_text() == f"{os.getpid()}\n"
        with (
            pytest.raises(UserError, match=f"in use by process {os.getpid()}; wait"),
            store.claimed(tmp_path, resume=True),
        ):
            pass
        (tmp_path / store.LOCK).write_text("")
        with (
            pytest.raises(UserError, match="in use by another process"),
            store.claimed(tmp_path, resume=True),
        ):
            pass
    with store.claimed(tmp_path, resume=True):
        pass
    with store.claimed(tmp_path / "new"):
        pass
    (tmp_path / "new" / "config.toml").touch()  # of a run that got nowhere
    (tmp_path / "new" / ".state.safetensors.4711").touch()
    with store.claimed(tmp_path / "new"):
        assert not (tmp_path / "new" / ".state.safetensors.4711").exists()
    (tmp_path / "hand").mkdir()
    (tmp_path / "hand" / "config.toml").touch()  # by somebody who wrote it there
    with pytest.raises(UserError, match="is not empty"), store.claimed(tmp_path / "hand"):
        pass
    (tmp_path / "new" / "metrics.json").touch()
    with pytest.raises(UserError, match="is not empty"), store.claimed(tmp_path / "new"):
        pass


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_may_be_read_by_whom_the_user_allows(mask, mode, tmp_path):
    before = os.umask(mask)
    try:
        store.write_bytes(tmp_path / "a", b"a")
        store.write_tensors(tmp_path / "b", {"b": torch.ones(1)})  # which safetensors would hide
        modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"}
        assert modes == {mode}
        assert os.umask(mask) == mask, "the user's own choice stays"
    finally:
        os.umask(before)


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    seen, path = [], tmp_path / "a.txt"
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(path.exists()))
    store.write_text(path, "ä")
    assert seen == [False]
    assert path.read_bytes() == "ä".encode()
    store.sync(path)
    store.sync(tmp_path)
    store.sync(tmp_path / "nothing")
    assert seen == [False, True, True]


def test_handles_are_given_back(tmp_path):
    handles = Path("/proc/self/fd")
    if not handles.is_dir():
        pytest.skip("this system does not tell which files are open")
    store.sync(tmp_path)
    before = len(list(handles.iterdir()))
    store.sync(tmp_path)
    assert len(list(handles.iterdir())) == before


def test_numbers_are_numbers_and_words_are_themselves(tmp_path):
    store.write_json(tmp_path / "a.json", {"a": ["ü"]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "a": [\n  "ü"\n ]\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write_json(tmp_path / "a.json", torch.nan)
    store.write_toml(tmp_path / "a.toml", {"a": {"b": 1}})
    assert (tmp_path / "a.toml").read_text() == "[a]\nb = 1\n"
    for _ in range(2):
        store.append_text(tmp_path / "a.txt", "line\n")
    assert (tmp_path / "a.txt").read_text() == "line\nline\n"
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        store.append_text(tmp_path, "line\n")


def test_tensors_come_back_by_name_prefix_and_with_what_was_said(tmp_path):
    path, one = tmp_path / "a.safetensors", torch.arange(6.0).reshape(2, 3)
    store.write_tensors(path, {"x/a": one, "x/b": one.T, "y/a": one[0]}, round="3")
    assert sorted(store.tensor_names(path)) == ["x/a", "x/b", "y/a"]
    tensors, about = store.read_tensors(path, "x/")
    assert tensors.keys() == {"a", "b"} and about == {"round": "3"}
    assert torch.equal(tensors["b"], one.T)
    store.write_tensors(path, {"a": one})
    assert store.read_tensors(path)[1] == {}


def test_what_cannot_be_written_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        store.write_bytes(tmp_path / "nowhere" / "a.bin", b"")
    with pytest.raises(UserError, match=r"a.safetensors cannot be written: .*No such file"):
        store.write_tensors(tmp_path / "nowhere" / "a.safetensors", {"a": torch.ones(1)})

    def fail(temporary):
        raise OSError("the disk is gone")  # without a number, so without the system's words

    with pytest.raises(UserError, match="cannot be written: the disk is gone"):
        store.write_with(tmp_path / "a", fail)


def test_what_is_missing_is_told_from_what_is_damaged(tmp_path):
    for read in (store.read_text, store.read_json, store.read_tensors, store.tensor_names):
        with pytest.raises(UserError, match=r"not a finished run: a.json is missing") as caught:
            read(tmp_path / "a.json")
        assert not isinstance(caught.value, store.Damaged)
        (tmp_path / "b.json").write_bytes(b"\xff\xfe")
        with pytest.raises(store.Damaged, match=r"b.json is damaged"):
            read(tmp_path / "b.json")
    for text in ("{", "[" * 100_000):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(store.Damaged, match=r"b.json is damaged"):
            store.read_json(tmp_path / "b.json")


def test_a_draft_becomes_the_folder_once_it_is_whole(tmp_path):
    with pytest.raises(ZeroDivisionError), store.drafted(tmp_path / "a") as draft:
        (draft / "half").touch()
        _ = 1 / 0
    assert not list(tmp_path.iterdir())
    with store.drafted(tmp_path / "a") as draft:
        (draft / "whole").touch()
        assert not (tmp_path / "a").exists()
    assert [p.name for p in tmp_path.glob("**/*")] == ["a", "whole"]
    with pytest.raises(UserError, match="is not empty"), store.drafted(tmp_path / "a"):
        pass


def test_clearing_takes_a_run_away_and_nothing_else(tmp_path):
    store.clear(tmp_path / "nowhere", ())
    for name in ("config.toml", "metrics.json", ".metrics.json.4711"):
        (tmp_path / name).touch()
    (tmp_path / "code").mkdir()
    known = ("config.toml", "metrics.json", "code", store.LOCK)
    with pytest.raises(UserError, match="holds no run, so that nothing in it is replaced"):
        store.clear(tmp_path, known)
    (tmp_path / store.LOCK).touch()
    with pytest.raises(UserError, match=r"holds metrics.json, which no run has written"):
        store.clear(tmp_path, (known[0], *known[2:]))
    assert (tmp_path / "config.toml").exists()
    store.clear(tmp_path, known)
    assert [p.name for p in tmp_path.iterdir()] == [store.LOCK]


def test_code_is_sealed_too(tmp_path):
    (tmp_path / store.CODE).mkdir()
    (tmp_path / store.CODE / "mine.py").write_text("x = 1")
    store.seal(tmp_path)
    store.verify(tmp_path, store.code_of(tmp_path))
    (tmp_path / store.CODE / "mine.py").write_text("x = 2")
    with pytest.raises(store.Damaged, match=r"mine.py is damaged or was changed"):
        store.verify(tmp_path, ["code/mine.py"])


def test_a_file_that_shrinks_while_it_is_read_is_damaged(tmp_path, monkeypatch):
    """A file that is mapped would end the process."""
    file = tmp_path / "t.safetensors"
    store.write_tensors(file, {f"{i}": torch.arange(1000.0) + i for i in range(3)}, kind="x")
    found, about = store.read_tensors(file)
    assert found["2"][0] == 2 and about == {"kind": "x"}
    assert store.read_tensors(file, "1")[0][""].tolist() == found["1"].tolist()
    read = tensors._tensor

    def shrinking(stream, start, entry):
        file.write_bytes(file.read_bytes()[:5000])
        return read(stream, start, entry)

    monkeypatch.setattr(tensors, "_tensor", shrinking)
    with pytest.raises(store.Damaged, match="ends early"):
        store.read_tensors(file)


def test_tensors_that_overlap_or_leave_gaps_are_damage(tmp_path):
    file = tmp_path / "t.safetensors"
    one = {"dtype": "F32", "shape": [1]}
    for spans in ([(0, 4), (0, 4)], [(0, 4), (5, 9)], [(4, 8)], [(0, 4), (8, 4)], [(0, 12)], []):
        head = {f"t{i}": one | {"data_offsets": list(span)} for i, span in enumerate(spans)}
        text = json.dumps(head).encode()
        file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        with pytest.raises(store.Damaged, match="is damaged"):
            store.read_tensors(file)
