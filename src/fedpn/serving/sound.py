"""Models are looked at before they are used: names, shapes and numbers must be those of a network.

A folder may come from anybody. What passes here takes no more memory than its files have bytes.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedpn.core.store import Damaged
from fedpn.core.trees import Params
from fedpn.nn.blueprint import Blueprint, build_model
from fedpn.nn.posterior import parameters


def check_model(blueprint: Blueprint, shared: Params, own: Params, path: Path, alone: bool) -> None:
    """Refuses tensors that are not those of the network, shared by all or a client's own.

    `alone`: the shared ones must be a whole network by themselves, since it answers as well.
    """
    expected = _outline(blueprint, path)
    for name, tensor in [*shared.items(), *own.items()]:
        if name not in expected:
            raise Damaged(f"{path}: the network has no {_quoted(name)}")
        want = expected[name]
        if tensor.shape != want.shape or tensor.dtype != want.dtype:
            raise Damaged(
                f"{path}: {_quoted(name)} is {_form(tensor)}, and the network's is {_form(want)}"
            )
    missing = expected.keys() - (shared.keys() if alone else shared.keys() | own.keys())
    if missing:
        raise Damaged(f"{path}: the network lacks {_quoted(min(missing))}")


def check_numbers(files: Mapping[str, Params], path: Path, finite: bool) -> None:
    """Refuses numbers that are none; where all must be finite, infinite ones as well."""
    for file, params in files.items():
        for name, tensor in params.items():
            if tensor.is_complex():
                raise Damaged(f"{path / file}: {_quoted(name)} is {_form(tensor)}")
            bad = ~tensor.isfinite() if finite else tensor.isnan()
            if bad.any():
                raise Damaged(f"{path / file}: {_quoted(name)} has a number that is not finite")


def _outline(blueprint: Blueprint, path: Path) -> Params:
    """The network's tensors without their contents, which takes no memory however large."""
    try:
        with torch.device("meta"):
            return parameters(build_model(blueprint, seed=0).network)
    except (RuntimeError, OverflowError) as error:
        raise Damaged(f"{path}: no such network can be built ({error})") from None


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _quoted(name: str) -> str:
    return repr(name[:80])
