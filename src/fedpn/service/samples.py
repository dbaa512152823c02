"""Inputs to try on the page: some that the run kept as examples, and some strange ones."""

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.data.recipe import Recipe
from fedpn.service.decode import to_png
from fedpn.serving.bundle import About, Bundle

Tree = dict[str, Any]
MOST = 6


def samples(bundle: Bundle, folder: Path) -> list[Tree]:
    """Known and foreign inputs where the folder is a run's, and noise in any case."""
    shape = tuple(bundle.blueprint.shape)
    if bundle.about.recipe is not None:
        return _of_columns(bundle.about.recipe)
    if len(shape) == 1:
        mean, std = np.asarray(bundle.blueprint.mean), np.asarray(bundle.blueprint.std)
        middle = np.resize(mean, shape)
        strange = middle + 40 * np.resize(std, shape)
        rows = {"middle of the data": middle, "strange": strange}
        return [
            {"kind": kind, "picture": None, "row": [float(v) for v in row]}
            for kind, row in rows.items()
        ]
    # Noise without a seed: the leading bits of multiples of a large odd number.
    noise = (np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(2654435761)) >> np.uint32(24)
    noise = noise.astype(np.uint8).reshape(shape)
    found = [*_examples(bundle, folder), ("strange: noise", noise)]
    found.append(("strange: black", np.zeros(shape, np.uint8)))
    return [
        {"kind": kind, "picture": base64.b64encode(to_png(pixels)).decode(), "row": None}
        for kind, pixels in found
    ]


def _of_columns(recipe: Recipe) -> list[Tree]:
    """A usual row of a table whose columns are prepared, and an absurd one."""
    usual = [column.usual for column in recipe.columns]
    strange = [1e9 if column.kind == "number" else None for column in recipe.columns]
    rows: dict[str, list[Any]] = {"middle of the data": usual, "strange": strange}
    return [{"kind": kind, "picture": None, "row": row} for kind, row in rows.items()]


def as_sample(kind: str, content: bytes, about: About) -> Tree:
    """An input that was kept, as it can be shown, if it is of the models' shape."""
    shape = about.blueprint.shape
    if len(content) != math.prod(shape) * (4 if len(shape) == 1 else 1):
        raise UserError("this input is of another shape than the models take now")
    if len(shape) == 1:
        row = np.nan_to_num(np.frombuffer(content, np.float32).astype(float))
        told = row.tolist() if about.recipe is None else about.recipe.told(row)
        return {"kind": kind, "picture": None, "row": told}
    pixels = np.frombuffer(content, np.uint8).reshape(tuple(shape))
    return {"kind": kind, "picture": base64.b64encode(to_png(pixels)).decode(), "row": None}


def _examples(bundle: Bundle, folder: Path) -> list[tuple[str, Any]]:
    """Examples of the run's report: the client's own first, then others'."""
    try:
        store.verify(folder, ["figures.json", "gallery.safetensors"])
        cards = store.read_json(folder / "figures.json")["gallery"]
        images = store.read_tensors(folder / "gallery.safetensors")[0].get("images")
        if images is None or len(images) != len(cards):
            return []
        has = bundle.standards.counts > 0
        known = {i: bool(has[int(card["label"])]) for i, card in enumerate(cards)}
        order = [i for i in known if known[i]][:MOST] + [i for i in known if not known[i]][:MOST]
        names = {True: "known", False: "foreign"}
        return [
            (f"{names[known[i]]}: {bundle.classes[int(cards[i]['label'])]}", images[i].numpy())
            for i in order
        ]
    except (UserError, OSError, KeyError, IndexError, TypeError, ValueError):
        return []
