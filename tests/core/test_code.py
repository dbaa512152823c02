"""Which files code of the user's own is in, and which of several of one name is meant."""

import importlib
import sys

import pytest

from fedpn.core.code import code_from, find_module, texts_of
from fedpn.core.errors import UserError

FILES = {
    "method.py": "import json\nfrom helper import two\nimport pack.deep.er\n",
    "helper.py": "import method  # in a circle\ntwo = 2\n\n\ndef late():\n    import lazy\n",
    "lazy.py": "raise RuntimeError('nobody has called it yet')\n",
    "json.py": "raise RuntimeError('the library has one, which is loaded')\n",
    "other.py": "strange = True\n",
    "pack/__init__.py": "from .beside import one\n",
    "pack/beside.py": "from . import last\none = 1\n",
    "pack/last.py": "",
    "pack/unused.py": "",
    "pack/deep/__init__.py": "",
    "pack/deep/er.py": "from ..beside import one\nfrom method import *\n",
}
MINE = {"method", "helper", "lazy", "other", "pack"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    write(tmp_path, FILES)
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] in MINE]:
        del sys.modules[name]


def write(place, files):
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def test_a_file_is_told_with_all_that_it_imports(place):
    """Packages and relative imports, in a circle or later; a name of the library's to be safe."""
    texts = texts_of("method.py:anything")
    assert texts == {name: text for name, text in FILES.items() if name in texts}
    assert FILES.keys() - texts.keys() == {"other.py", "pack/unused.py"}
    assert texts_of("method:anything") == texts_of(f"{place}/method.py:anything") == texts
    assert "pack/deep/er.py" in texts_of("pack.deep.er:one")
    assert sys.modules["json"].__name__ == "json" and hasattr(sys.modules["json"], "dumps")


@pytest.mark.parametrize("spec", ["fedpn.algorithms:FedAvg", "json:dumps", "numpy:array"])
def test_what_is_installed_is_not_the_users_own(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert texts_of(spec) == {}


def test_a_folder_has_modules_of_its_own(place):
    """Though others of their names are loaded, helpers among them."""
    kept = place / "kept"
    write(kept, {"method.py": "from helper import two\n", "helper.py": "two = 22\n"})
    assert find_module("method.py:two").two == 2
    with code_from(kept):
        assert find_module("method.py:two").two == 22
        assert texts_of("method.py:two").keys() == {"method.py", "helper.py"}
    assert find_module("method.py:two").two == 2
    assert str(kept) not in sys.path


def test_what_was_edited_after_it_was_loaded_is_told(place):
    texts_of("method.py:two")
    (place / "helper.py").write_text("two = 3\n")
    with pytest.raises(UserError, match=r"helper.py was edited after it was loaded.*reload"):
        texts_of("method.py:two")
    importlib.reload(sys.modules["helper"])
    assert texts_of("method.py:two")["helper.py"] == "two = 3\n"
