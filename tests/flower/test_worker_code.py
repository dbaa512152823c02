"""Code that travels with a run: not looked at unless a node allows it, and one run's at a time."""

import io
import sys
import zipfile
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedpn[flower]'")

from fedpn.core.errors import UserError
from fedpn.flower.app.policy import FILE, Policy, write_policy
from fedpn.flower.worker.code import LARGEST, Code, read_modules


def app(**files):
    """An app as Flower sends it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return file.getvalue()


def allow(state, code):
    (state / FILE).write_text(write_policy(replace(Policy(), code=code)))


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_nothing_is_even_unpacked_unless_the_node_allows_it(tmp_path):
    code = Code(tmp_path)
    assert code.load(b"no archive at all")
    assert code.load(app(travelled="raise SystemExit"))
    assert not (tmp_path / "code").exists()


def test_modules_are_found_and_those_of_another_run_need_another_process(tmp_path):
    allow(tmp_path, True)
    code, mine = Code(tmp_path), app(travelled_module="ANSWER = 42")
    assert code.load(mine) and code.load(mine)
    assert not code.load(app())  # whose run brings none gets a clean process, too
    import travelled_module

    assert travelled_module.ANSWER == 42
    assert not code.load(app(travelled_module="ANSWER = 43"))


def test_a_policy_is_read_with_every_message(tmp_path):
    allow(tmp_path, True)
    code = Code(tmp_path)
    assert code.load(app())
    allow(tmp_path, False)
    assert code.load(app(travelled_later="ANSWER = 42"))
    assert not (tmp_path / "code").exists()


def test_only_modules_at_the_top_travel(tmp_path):
    found = read_modules(app(**{"good": "", "folder__deeper": "", "..__evil": "", "a-b": ""}))
    assert list(found) == ["good.py"]


def test_a_bomb_and_a_broken_app_are_refused():
    with pytest.raises(UserError, match="more than"):
        read_modules(app(large=" " * (LARGEST + 1)))
    with pytest.raises(UserError, match="cannot be read"):
        read_modules(b"PK\x03\x04 and no more")
