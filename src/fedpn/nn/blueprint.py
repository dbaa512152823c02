"""Settings -> a model: the network and its loss as pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from fedpn.core.bounds import Bounds, Depth, Positive, Width
from fedpn.core.errors import UserError
from fedpn.core.settings import build, one_of
from fedpn.nn.density import DENSITIES, make_density
from fedpn.nn.encoders import ENCODERS, Frozen, make_encoder
from fedpn.nn.loss import LOSSES, cross_entropy
from fedpn.nn.posterior import Classifier, Normalise, PosteriorNetwork
from fedpn.nn.resnet import load_pretrained
from fedpn.nn.task import Model, make_model
from fedpn.nn.two_headed import TwoHeaded, balanced_and_personal

KINDS = ("classifier", "posterior", "two-headed")


@dataclass(frozen=True)
class Blueprint:
    """All that it takes to build a network again: plain values, kept with every run."""

    kind: str  # one of KINDS
    shape: tuple[Annotated[int, Bounds(low=1, high=2**24)], ...]  # of one input
    classes: Annotated[int, Bounds(low=2, high=2**20)]
    encoder: str
    dim: Width
    density: str
    layers: Depth
    mean: tuple[float, ...]  # of the training rows, per channel or column
    std: tuple[Positive, ...]
    norm: Literal["auto", "none", "batch", "group"] = "auto"
    frozen: bool = False  # whether the encoder stays as it is


def read_blueprint(tree: Any) -> Blueprint:
    """Reads a blueprint from plain values that may come from anybody."""
    if not isinstance(tree, dict) or tree.keys() != {f.name for f in fields(Blueprint)}:
        raise UserError("the network lacks a setting, or has one that none has")
    found = build(Blueprint, tree, "model")
    one_of("model.kind", found.kind, KINDS)
    if ":" not in found.encoder:
        one_of("model.encoder", found.encoder, list(ENCODERS))
    if ":" not in found.density:
        one_of("model.density", found.density, list(DENSITIES))
    if len(found.shape) not in (1, 3):
        raise UserError(f"model.shape is {list(found.shape)}, and inputs are rows or pictures")
    if not len(found.mean) == len(found.std) == found.shape[0]:
        raise UserError("model.mean and model.std must have a number for each channel or column")
    return found


def choose_encoder(name: str, shape: Sequence[int]) -> str:
    """Takes LeNet-5 for images and an MLP for tables, where nothing is said.

    >>> choose_encoder("auto", (1, 28, 28)), choose_encoder("auto", (30,))
    ('lenet5', 'mlp')
    """
    if name != "auto":
        return name
    return "lenet5" if len(shape) == 3 else "mlp"


def build_model(
    blueprint: Blueprint, seed: int, loss: dict[str, Any] | None = None, pretrained: str = ""
) -> Model:
    """Builds the network, its first parameters drawn by the seed.

    `loss` has the name and the options of a posterior network's loss; `pretrained` is the path of
    an encoder's weights.
    """
    b = blueprint
    sizes = (-1,) + (1,) * (len(b.shape) - 1)
    normalise = Normalise(*(torch.tensor(v).reshape(sizes) for v in (b.mean, b.std)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = make_encoder(b.encoder, tuple(b.shape), b.dim, b.norm)
        if pretrained:
            load_pretrained(encoder, Path(pretrained))
        encoder = Frozen(encoder) if b.frozen else encoder
        if b.kind == "classifier":
            return make_model(Classifier(normalise, encoder, b.dim, b.classes), cross_entropy)
        if b.kind == "two-headed":
            heads = TwoHeaded(normalise, encoder, b.dim, b.classes)
            return make_model(heads, balanced_and_personal)
        density = make_density(b.density, b.dim, b.classes, b.layers)
        network = PosteriorNetwork(normalise, encoder, density, b.dim, b.classes)
    options = dict(loss or {"name": "repaired"})
    return make_model(network, partial(LOSSES[options.pop("name")], **options))
