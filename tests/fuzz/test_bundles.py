"""Folders of models from elsewhere: opened and asked, or refused in a sentence."""

import json
import shutil

import numpy as np
import pytest
import torch
from absurd import changed, json_values
from finished_runs import run_of_a_table, run_of_pictures
from hypothesis import given
from hypothesis import strategies as st
from mutate import mutated
from safetensors.torch import load_file, save_file
from trial import fuzz, reads

from fedpn.core import store
from fedpn.serving.bundle import FILES, SHARED, SLOTS, open_bundle
from fedpn.serving.predict import Predictor

TENSORS = [*SHARED.values(), *SLOTS.values()]
KINDS = [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64]
SHAPES = [(), (0,), (1,), (2,), (3, 3), (10, 10), (1, 2, 3, 4)]
ABSURD = json_values()


@pytest.fixture(scope="module", params=["pictures", "table", "posterior"])
def bundle(request, quick_run, tmp_path_factory):
    """A copy of a run's models, inputs that fit, and the first client."""
    makers = {"pictures": run_of_pictures, "table": run_of_a_table}
    make = makers.get(request.param, lambda place: quick_run)
    run = make(tmp_path_factory.mktemp("models"))
    place = tmp_path_factory.mktemp("bundle")
    for name in FILES:
        shutil.copy(run / name, place / name)
    store.seal(place)
    tree = described(place)
    shape = tree["model"]["shape"]
    kind = np.float32 if len(shape) == 1 else np.uint8
    return place, np.ones((2, *shape), kind), tree["clients"][0]


def described(place):
    return json.loads((place / "bundle.json").read_text(encoding="utf-8"))


def damaged(bundle, tmp_path, name, content):
    """The same models but for one file, under checksums that fit."""
    place, rows, first = bundle
    target = tmp_path / "bundle"
    shutil.copytree(place, target, dirs_exist_ok=True)
    (target / name).write_bytes(content)
    store.seal(target)
    reads(lambda: Predictor(open_bundle(target, first))(rows))
    reads(lambda: Predictor(open_bundle(target))(rows))


@fuzz(examples=40)
@given(data=st.data())
def test_descriptions_of_absurd_values(data, bundle, tmp_path):
    tree = data.draw(changed(described(bundle[0]), ABSURD))
    damaged(bundle, tmp_path, "bundle.json", json.dumps(tree).encode())


@fuzz(examples=30)
@given(data=st.data())
def test_descriptions_with_damage(data, bundle, tmp_path):
    content = data.draw(mutated((bundle[0] / "bundle.json").read_bytes()))
    damaged(bundle, tmp_path, "bundle.json", content)


@fuzz(examples=40)
@given(data=st.data())
def test_tensors_of_models_with_damage(data, bundle, tmp_path):
    name = data.draw(st.sampled_from(TENSORS))
    content = data.draw(mutated((bundle[0] / name).read_bytes()))
    damaged(bundle, tmp_path, name, content)


@fuzz(examples=60)
@given(data=st.data())
def test_models_of_other_tensors(data, bundle, tmp_path):
    """One tensor has another type or shape or no finite numbers, or is missing, or is too many."""
    name = data.draw(st.sampled_from(TENSORS))
    tensors = load_file(bundle[0] / name)
    key = data.draw(st.sampled_from([*tensors, "0/odd"]))
    shape = data.draw(st.sampled_from([*SHAPES, *(tuple(t.shape) for t in tensors.values())]))
    number = data.draw(st.sampled_from([0.0, 1.0, -1.0, 1e30, float("nan"), float("inf")]))
    if data.draw(st.booleans()):
        tensors[key] = torch.full(shape, number).to(data.draw(st.sampled_from(KINDS)))
    else:
        tensors.pop(key, None)
    save_file(tensors, tmp_path / "other")
    damaged(bundle, tmp_path, name, (tmp_path / "other").read_bytes())


def test_whole_bundles_answer(bundle):
    place, rows, first = bundle
    assert reads(lambda: Predictor(open_bundle(place, first))(rows))
