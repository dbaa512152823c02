"""Folders that somebody has made up: they are refused in a sentence as they are opened."""

import shutil

import numpy as np
import pytest
import torch

import fedpn
from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.serving.bundle import SHARED, SLOTS
from fedpn.serving.export import export

INPUTS = np.zeros((3, 28, 28), np.uint8)


@pytest.fixture(scope="module", params=["fedpn", "analytic"])
def folder(request, quick_run, tmp_path_factory):
    """One client's exported folder, of a trained and of a closed-form model."""
    place = tmp_path_factory.mktemp("crafted")
    run = quick_run
    if request.param == "analytic":
        run = place / "run"
        few = {"clients": 3, "head__filters": 5, "routing__risk": 0.2}
        fedpn.run(run, dataset="digits", algorithm="analytic", **few)
    export(run, 0, place / "whole")
    return place / "whole"


@pytest.fixture
def copy(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "folder")
    return tmp_path / "folder"


def refused(folder, words="", must=True):
    """Opens a folder whose checksums are right: it is refused in a sentence, or it answers."""
    store.seal(folder)
    try:
        predictor = fedpn.load(folder)
    except UserError as error:
        assert words in str(error) and "\n" not in str(error)
        return
    assert not must, "it was taken"
    assert len(predictor(INPUTS)) == len(INPUTS)


def spoil(path, change):
    """Changes the tensors of a file, if it has any; returns whether it had."""
    tensors, _ = store.read_tensors(path)
    if tensors:
        store.write_tensors(path, change(tensors))
    return bool(tensors)


def each(change):
    return lambda tensors: {name: change(t) for name, t in tensors.items()}


def nan(t):
    return torch.full(t.shape, torch.nan, dtype=torch.float64).to(t.dtype) if t.numel() else t


FLOATS = (torch.float32, torch.float64)
CHANGES = {
    "longer": each(lambda t: torch.cat([t.reshape(-1), t.reshape(-1), t.reshape(-1)])),
    "empty": each(lambda t: t.reshape(-1)[:0]),
    "numbers": each(lambda t: t.reshape(-1)[0] if t.numel() else t),
    "whole": each(lambda t: t.nan_to_num(0, 9, -9).long()),
    "truths": each(lambda t: t.bool()),
    "halves": each(lambda t: t.half()),
    "huge": each(lambda t: torch.full_like(t, 3e38) if t.dtype in FLOATS else t),
    "below zero": each(lambda t: -t.abs() - 1),
    "without one": lambda tensors: dict(list(tensors.items())[1:]),
    "nothing": lambda tensors: {},
    "strange": lambda tensors: {f"{name}.x": t for name, t in tensors.items()},
}
FILES = [*SHARED.values(), *SLOTS.values()]


@pytest.mark.parametrize("file", FILES)
def test_numbers_that_are_none_are_refused(copy, file):
    had = spoil(copy / file, lambda tensors: {n: nan(t) for n, t in tensors.items()})
    refused(copy, must=had, words="number that is" if had else "")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file", FILES)
def test_other_tensors_are_refused_or_answer(copy, file, change):
    spoil(copy / file, CHANGES[change])
    changed = {"longer", "empty", "whole", "truths", "halves", "without one", "strange"}
    must = {SHARED["model"]: changed, SLOTS["own"]: changed - {"without one"}}
    has = bool(store.tensor_names(copy / file))
    refused(copy, must=has and change in must.get(file, ()))


def test_infinite_weights_are_refused(copy):
    if spoil(copy / SHARED["model"], each(lambda t: t / 0)):
        refused(copy, "is not finite")


@pytest.mark.parametrize("file", FILES)
def test_files_of_one_another_are_refused(copy, file):
    content = (copy / file).read_bytes()
    other = SLOTS["standards"] if file != SLOTS["standards"] else SLOTS["rule"]
    (copy / file).write_bytes((copy / other).read_bytes())
    refused(copy, must=file in (SHARED["model"], SLOTS["own"]))
    (copy / file).write_bytes(content[: len(content) // 2])
    refused(copy, "is damaged")


ABSURD = [None, -1, 10**9, 10**400, 1.5, "x" * 10**5, True, [], {}, [None]]


@pytest.mark.parametrize("place", ["format", "classes", "clients", "features", "head", "routing"])
def test_absurd_facts_are_refused_or_harmless(copy, place):
    whole = store.read_json(copy / "bundle.json")
    for value in ABSURD:
        store.write_json(copy / "bundle.json", whole | {place: value})
        benign = (place, value) == ("features", []) or place in ("head", "routing")
        refused(copy, must=not benign)


@pytest.mark.parametrize("name", ["shape", "classes", "encoder", "dim", "density", "layers", "std"])
def test_absurd_networks_are_refused(copy, name):
    whole = store.read_json(copy / "bundle.json")
    for value in ABSURD:
        tree = whole | {"model": whole["model"] | {name: value}}
        store.write_json(copy / "bundle.json", tree)
        refused(copy, "bundle.json is damaged" if value != 10**9 else "", must=True)


@pytest.mark.parametrize("section", ["head", "routing"])
def test_absurd_settings_are_refused_or_harmless(copy, section):
    whole = store.read_json(copy / "bundle.json")
    for key in whole[section]:
        for value in ABSURD:
            tree = whole | {section: whole[section] | {key: value}}
            store.write_json(copy / "bundle.json", tree)
            refused(copy, must=False)


def test_a_manifest_of_another_kind_is_refused(copy):
    for text in ("[]", "3", '{"bundle.json": 3}', "null"):
        (copy / store.MANIFEST).write_text(text)
        with pytest.raises(UserError):
            fedpn.load(copy)
