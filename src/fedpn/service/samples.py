"""Inputs to try on the page: some that the run kept as examples, and some strange ones."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpn.core import store
from fedpn.core.errors import UserError
from fedpn.data.dataset import Array
from fedpn.data.recipe import LARGEST, Recipe
from fedpn.service.decode import to_png
from fedpn.serving.bundle import Bundle

Tree = dict[str, Any]
MOST = 6


def samples(bundle: Bundle, found: Sequence[tuple[str, Array]]) -> list[Tree]:
    """The examples that were found beside the models, and noise in any case."""
    shape = tuple(bundle.blueprint.shape)
    if bundle.about.recipe is not None:
        return _of_columns(bundle.about.recipe)
    if len(shape) == 1:
        mean, std = np.asarray(bundle.blueprint.mean), np.asarray(bundle.blueprint.std)
        middle = np.resize(mean, shape)
        strange = middle + 40 * np.resize(std, shape)
        rows = {"middle of the data": middle, "strange": strange}
        return [_of_row(kind, row.tolist(), bundle.features) for kind, row in rows.items()]
    # Noise without a seed: the leading bits of multiples of a large odd number.
    noise = (np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(2654435761)) >> np.uint32(24)
    noise = noise.astype(np.uint8).reshape(shape)
    strange = {"strange: noise": noise, "strange: black": np.zeros(shape, np.uint8)}
    return [_of_picture(kind, pixels) for kind, pixels in [*found, *strange.items()]]


def _of_columns(recipe: Recipe) -> list[Tree]:
    """A usual row of a table whose columns are prepared, and an absurd one."""
    usual = [column.usual for column in recipe.columns]
    strange = [1e9 if column.kind == "number" else None for column in recipe.columns]
    rows: dict[str, list[Any]] = {"middle of the data": usual, "strange": strange}
    return [_of_row(kind, row, recipe.names) for kind, row in rows.items()]


def as_sample(kind: str, given: Any) -> Tree:
    """An input that was kept, as it can be shown, whatever the models take now."""
    if isinstance(given, np.ndarray):
        return _of_picture(kind, given)
    columns, row = (list(given), given.values()) if isinstance(given, dict) else ((), given)
    return _of_row(kind, [_plain(value) for value in row], columns)


def _plain(value: Any) -> Any:
    """JSON knows no numbers that are not finite."""
    is_odd = isinstance(value, int | float) and not abs(value) <= LARGEST
    return str(value) if is_odd else value


def _of_row(kind: str, row: list[Any], columns: Sequence[str]) -> Tree:
    return {"kind": kind, "picture": None, "row": row, "columns": list(columns) or None}


def _of_picture(kind: str, pixels: Array) -> Tree:
    content = base64.b64encode(to_png(pixels)).decode()
    return {"kind": kind, "picture": content, "row": None, "columns": None}


def examples(bundle: Bundle, folder: Path) -> list[tuple[str, Array]]:
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
