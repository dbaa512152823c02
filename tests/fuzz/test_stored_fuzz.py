"""What a run keeps: tensors, JSON, checksums, checkpoints. Read, or refused in a sentence."""

import json
import struct

import pytest
import torch
from absurd import changed, json_values, texts
from hypothesis import example, given
from hypothesis import strategies as st
from mutate import mutated
from safetensors.torch import save
from trial import fuzz, reads

from fedpn.core import store
from fedpn.federated.checkpoint import HISTORY, STATE, Journal, State, read_state
from fedpn.nn.resnet import load_pretrained

TENSORS = save(
    {"0/w": torch.ones(2, dtype=torch.int64), "weight": torch.ones(2, 3), "bias": torch.ones(2)}
)
KINDS = ["F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"]
ODD = ["BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "C64", "X9", ""]


def file_of(head, content=bytes(64)):
    """A safetensors file with this head."""
    told = json.dumps(head).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(told)) + told + content


def opened(path):
    """Read in every way."""
    reads(lambda: store.read_tensors(path), path.name)
    reads(lambda: store.read_tensors(path, "0/"), path.name)
    reads(lambda: store.tensor_names(path), path.name)
    reads(lambda: load_pretrained(torch.nn.Linear(3, 2), path), path.name)


@fuzz(examples=150)
@given(content=mutated(TENSORS))
@example(content=b"")
def test_tensors_with_damage(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    opened(path)


SIZES = st.one_of(st.integers(0, 9), st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, -1]))


@fuzz(examples=200)
@given(
    kind=st.sampled_from(KINDS + ODD),
    shape=st.lists(SIZES, max_size=5),
    name=st.one_of(texts(), st.just("weight")),
    told=st.dictionaries(texts(), st.one_of(texts(), json_values()), max_size=2),
    end=st.one_of(st.integers(0, 64), st.none()),
)
@example(kind="C64", shape=[2, 3], name="weight", told={}, end=None)
@example(kind="F32", shape=[0, 2**62, 2**62], name="w", told={}, end=0)
@example(kind="F32", shape=[0, 2**63], name="w", told={}, end=0)
def test_tensors_of_absurd_heads(kind, shape, name, told, end, tmp_path):
    size = {"F64": 8, "C64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4}.get(kind, 1)
    size = 2 if kind.endswith("16") else size
    for side in shape:
        size *= side
    held = size if end is None and 0 <= size < 10**6 else end or 0
    head = {"__metadata__": told, name: {"dtype": kind, "shape": shape, "data_offsets": [0, held]}}
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(head, bytes(held)))
    opened(path)
    if kind in KINDS:
        reads(lambda: read_state(path), path.name)


@fuzz(examples=150)
@given(content=st.one_of(mutated(b'{"a": [1, 2.5, null], "b": {"c": "\\u00e9"}}'), st.binary()))
@example(content=b"9" * 5000)
@example(content=b"[" * 100_000)
def test_json_with_damage(content, tmp_path):
    path = tmp_path / "metrics.json"
    path.write_bytes(content)
    reads(lambda: store.read_json(path), path.name)


@pytest.fixture
def sealed(tmp_path):
    """A directory with a file and its checksum."""
    store.write_json(tmp_path / "bundle.json", {"a": 1})
    store.seal(tmp_path)
    return tmp_path


SUMS = {"bundle.json": "0" * 64}
LISTS = st.one_of(
    changed(SUMS, json_values()).map(json.dumps).map(str.encode), mutated(json.dumps(SUMS).encode())
)


@fuzz(examples=80)
@given(content=LISTS)
def test_lists_of_checksums(content, sealed):
    (sealed / store.MANIFEST).write_bytes(content)
    reads(lambda: store.verify(sealed, ["bundle.json"]))


@pytest.mark.parametrize("name", ["bundle.json", store.MANIFEST])
def test_a_folder_where_a_file_should_be(name, sealed):
    (sealed / name).unlink()
    (sealed / name).mkdir()
    assert not reads(lambda: store.verify(sealed, ["bundle.json"]), name)
    assert not reads(lambda: store.read_json(sealed / name), name)
    assert not reads(lambda: store.read_tensors(sealed / name), name)


KEPT = {"model/w": [1] * 3, "kept.memory": [0] * 20}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The bytes of a checkpoint, and of the history beside it."""
    out = tmp_path_factory.mktemp("run")
    journal = Journal(out, {"data": "these"})
    for number in (1, 2):
        journal.write({"round": number, "loss": 0.5})
    state = State({"model": {"w": torch.ones(3)}}, 2, True)
    journal.save(state, {"memory": torch.zeros(20)}, {"engine": "simulator"})
    return (out / STATE).read_bytes(), (out / HISTORY).read_bytes()


@fuzz(examples=120)
@given(data=st.data())
def test_checkpoints_with_damage(data, checkpoint, tmp_path):
    state, history = checkpoint
    (tmp_path / STATE).write_bytes(data.draw(mutated(state)))
    (tmp_path / HISTORY).write_bytes(history)
    if reads(lambda: read_state(tmp_path / STATE), STATE):  # then it is what was written
        tensors, about = read_state(tmp_path / STATE)
        assert {name: t.tolist() for name, t in tensors.items()} == KEPT
        assert (about["round"], about["data"], about["engine"]) == ("2", "these", "simulator")
    journal = Journal(tmp_path, {"data": "these"})
    reads(journal.check)
    reads(lambda: journal.load(State({}), lambda kept, about: None))


@fuzz(examples=25)
@given(data=st.data())
def test_histories_with_damage(data, checkpoint, tmp_path):
    state, history = checkpoint
    (tmp_path / STATE).write_bytes(state)
    (tmp_path / HISTORY).write_bytes(data.draw(mutated(history)))
    journal = Journal(tmp_path, {"data": "these"})
    reads(lambda: journal.load(State({}), lambda kept, about: None))


def test_what_is_whole_is_read(checkpoint, sealed):
    (sealed / "model.safetensors").write_bytes(TENSORS)
    assert reads(lambda: store.read_tensors(sealed / "model.safetensors"))
    assert reads(lambda: load_pretrained(torch.nn.Linear(3, 2), sealed / "model.safetensors"))
    (sealed / STATE).write_bytes(checkpoint[0])
    assert reads(lambda: read_state(sealed / STATE))
    assert reads(lambda: store.verify(sealed, ["bundle.json"]))
