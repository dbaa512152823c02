"""A federation as a picture: who has how much of which class, and what it looks like."""

import io
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpn.data.dataset import Array, Dataset
from fedpn.data.describe import client_name, title
from fedpn.data.federation import Federation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLIENTS, MOST_CLASSES = 50, 40
SAMPLES = 9  # images a client
CELL = 0.36  # inches a client and a class
BORDER = 0.07  # of an image's side, in the colour of its class
INK, FAINT = "#333333", "#e6e6e6"


def bubbles(dataset: Dataset, federation: Federation, path: Path) -> None:
    """Writes the picture as a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(bubbles_png(dataset, federation))
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def bubbles_png(dataset: Dataset, federation: Federation) -> bytes:
    """Draws a bubble for each client and class, its area the number of rows.

    Images of each client stand beside its bubbles, framed in the colours of their classes.
    """
    clients = min(federation.clients, MOST_CLIENTS)
    kinds = min(federation.counts.shape[1], MOST_CLASSES)
    colours = _colours(kinds)
    figure, left, right = _page(clients, kinds, dataset)
    _draw_bubbles(left, dataset, federation.counts[:clients, :kinds], colours)
    if right is not None:
        _draw_samples(right, dataset, federation, clients, colours)
    cut = _cut(federation, clients, kinds)
    heading = title(dataset, federation).replace(": ", "\n", 1) + cut
    left.set_title(heading, loc="left", pad=14, fontsize=10, color=INK)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=144, bbox_inches="tight", pad_inches=0.2)
    return content.getvalue()


def _page(clients: int, kinds: int, dataset: Dataset) -> tuple["Figure", "Axes", "Axes | None"]:
    """Lays the two panels out in inches, so that a client's images stand beside its bubbles."""
    from matplotlib.figure import Figure

    has_images = dataset.x.ndim == 4
    width, gap, height = kinds * CELL, CELL, clients * CELL
    strip = SAMPLES * CELL if has_images else 0.0
    total = width + (gap + strip if has_images else 0.0)
    figure = Figure(figsize=(total, height), facecolor="white")
    left = figure.add_axes((0, 0, width / total, 1))
    if not has_images:
        return figure, left, None
    return figure, left, figure.add_axes(((width + gap) / total, 0, strip / total, 1), sharey=left)


def _draw_bubbles(axes: "Axes", dataset: Dataset, counts: Array, colours: Array) -> None:
    clients, kinds = counts.shape
    client, kind = np.nonzero(counts)
    # The largest bubble fills most of its cell; areas are in square points, 72 to the inch.
    areas = (CELL * 72 * 0.86) ** 2 * counts[client, kind] / counts.max()
    axes.scatter(kind, client, s=areas, c=colours[kind], linewidths=0, zorder=2)
    axes.set_xlim(-0.5, kinds - 0.5)
    axes.set_ylim(clients - 0.5, -0.5)
    names = dataset.classes[:kinds]
    axes.set_xticks(range(kinds), names, rotation=0 if max(map(len, names)) <= 2 else 90)
    axes.set_yticks(range(clients), [client_name(dataset, c) for c in range(clients)])
    axes.set_xlabel(f"class (the largest bubble is {counts.max()} rows)", color=INK)
    axes.set_ylabel("client", color=INK)
    axes.grid(color=FAINT, linewidth=0.6, zorder=0)
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    axes.spines[:].set_visible(False)


def _draw_samples(
    axes: "Axes", dataset: Dataset, federation: Federation, clients: int, colours: Array
) -> None:
    for client in range(clients):
        for place, row in enumerate(_sample(federation, client)):
            image = _framed(dataset.x[row], colours[dataset.y[row] % len(colours)])
            box = (place - 0.45, place + 0.45, client + 0.45, client - 0.45)
            axes.imshow(image, extent=box, interpolation="antialiased", aspect="auto")
    axes.set_xlim(-0.5, SAMPLES - 0.5)
    axes.set_ylim(clients - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_xlabel("some of its training rows", color=INK)
    axes.tick_params(length=0, labelleft=False)
    axes.spines[:].set_visible(False)


def _sample(federation: Federation, client: int) -> Array:
    """Picks training rows evenly over the client's classes, sorted by class."""
    rows = federation.train[client]
    by_class = rows[np.argsort(federation.labels[rows], kind="stable")]
    order = np.linspace(0, len(by_class) - 1, min(SAMPLES, len(by_class))).round().astype(int)
    chosen: Array = by_class[order]
    return chosen


def _framed(image: Array, colour: Array) -> Array:  # [C, H, W] -> [H', W', 3]
    rgb = np.broadcast_to(image, (3, *image.shape[1:])) if len(image) == 1 else image[:3]
    height, width = rgb.shape[1:]
    border = max(1, round(BORDER * max(height, width)))
    framed = np.empty((height + 2 * border, width + 2 * border, 3), np.uint8)
    framed[:] = (colour[:3] * 255).astype(np.uint8)
    framed[border:-border, border:-border] = rgb.transpose(1, 2, 0)
    return framed


def _colours(kinds: int) -> Array:  # [kinds, 4]
    from matplotlib import colormaps

    if kinds <= 10:
        return np.asarray(colormaps["tab10"](np.arange(kinds)))
    return np.asarray(colormaps["turbo"](np.linspace(0.05, 0.95, kinds)))


def _cut(federation: Federation, clients: int, kinds: int) -> str:
    if clients == federation.clients and kinds == federation.counts.shape[1]:
        return ""
    return f"\n(the first {clients} clients and {kinds} classes)"
