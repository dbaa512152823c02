"""Settings from files and from the command line are understood, or refused in a sentence."""

import tomli_w
from absurd import changed, texts, toml_values, values
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from trial import fuzz, reads

from fedpn.algorithms import ALGORITHMS
from fedpn.core.settings import parse_setting, read_toml
from fedpn.runs.config import Config, resolve, to_tree

WHOLE = to_tree(Config())
FILE = tomli_w.dumps(WHOLE).encode()
SECTIONS = [key for key, value in WHOLE.items() if isinstance(value, dict)] + list(ALGORITHMS)
KEYS = [f"{a}.{b}" for a in SECTIONS if a in WHOLE for b in WHOLE[a]] + list(WHOLE)


def understood(path, content):
    """A config file, read and resolved."""
    path.write_bytes(content)
    if reads(lambda: read_toml(path), path.name):
        return reads(lambda: resolve([read_toml(path)]))
    return False


@fuzz(examples=120)
@given(content=mutated(FILE))
@example(content=b"rounds = " + b"9" * 5000)  # more digits than Python reads
@example(content=b"rounds = 0x" + b"f" * 5000)  # more than it writes
@example(content=b"algorithm = 0x" + b"f" * 5000)
@example(content=b"a" + b".a" * 5000 + b" = 1")  # sections in sections without end
@example(content=b"x = " + b"[" * 5000)
@example(content=b"dataset = '" + b"x" * 300 + b"'")  # longer than the name of a file
@example(content=b"[routing]\nrouter = []")
@example(content=b"algorithm = '.mine:Own'")
@example(content=b"algorithm = '\\u0000.py:Own'".replace(b"'", b'"'))
@example(content=b'"a\\nb" = 1')
def test_config_files_with_damage(content, tmp_path):
    understood(tmp_path / "run.toml", content)


@fuzz(examples=120)
@given(tree=changed(WHOLE, toml_values()))
def test_config_files_of_absurd_values(tree, tmp_path):
    if isinstance(tree, dict):
        understood(tmp_path / "run.toml", tomli_w.dumps(tree).encode())


@fuzz(examples=120)
@given(
    tree=st.one_of(changed(WHOLE, values()), st.dictionaries(st.sampled_from(SECTIONS), values()))
)
def test_layers_of_absurd_values(tree):
    if isinstance(tree, dict):
        reads(lambda: resolve([tree]))


@fuzz(examples=200)
@given(
    key=st.one_of(st.sampled_from(KEYS), texts()),
    value=st.one_of(texts(), toml_values().map(repr), st.binary(max_size=20).map(repr)),
)
@example(key="rounds", value="9" * 5000)
@example(key="a" + ".a" * 5000, value="1")
@example(key="rounds", value="[" * 5000)
@example(key="rounds", value="a\udcff")
def test_single_settings(key, value):
    if reads(lambda: parse_setting(f"{key}={value}")):
        reads(lambda: resolve([parse_setting(f"{key}={value}")]))


def test_a_whole_file_is_understood(tmp_path):
    assert understood(tmp_path / "run.toml", FILE)
