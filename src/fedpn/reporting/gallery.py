"""A federation as a picture: who has how much of which class, and what it looks like."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpn.core.extras import needed
from fedpn.core.plain import plain
from fedpn.core.store import write_bytes
from fedpn.data.dataset import Array, Dataset
from fedpn.data.describe import client_name, title
from fedpn.data.federation import Federation
from fedpn.reporting.pixels import as_rgb

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
    write_bytes(path, bubbles_png(dataset, federation))


def bubbles_png(dataset: Dataset, federation: Federation) -> bytes:
    """Draws a bubble for each client and class, its area the number of rows.

    Images of each client stand beside its bubbles, framed in the colours of their classes.
    """
    with needed("a picture"):
        import matplotlib as mpl

    from fedpn.reporting.plots import NO_FORMULAS

    clients = min(federation.clients, MOST_CLIENTS)
    classes = min(federation.counts.shape[1], MOST_CLASSES)
    colours = _colours(classes)
    content = io.BytesIO()
    with mpl.rc_context(NO_FORMULAS):  # type: ignore[arg-type]
        figure, left, right = _panels(clients, classes, has_images=dataset.x.ndim == 4)
        _draw_bubbles(left, dataset, federation.counts[:clients, :classes], colours)
        if right is not None:
            _draw_samples(right, dataset, federation, clients, colours)
        name, _, sums = title(dataset, federation).rpartition(": ")
        heading = f"{plain(name)}\n{plain(sums)}{_what_is_shown(federation, clients, classes)}"
        left.set_title(heading, loc="left", pad=14, fontsize=10, color=INK)
        figure.savefig(content, format="png", dpi=144, bbox_inches="tight", pad_inches=0.2)
    return content.getvalue()


def _panels(clients: int, classes: int, has_images: bool) -> tuple["Figure", "Axes", "Axes | None"]:
    """Lays two panels out in inches, so that a client's images stand beside its bubbles."""
    from matplotlib.figure import Figure

    width, gap, height = classes * CELL, CELL, clients * CELL
    images = SAMPLES * CELL
    total = width + gap + images if has_images else width
    figure = Figure(figsize=(total, height), facecolor="white")
    left = figure.add_axes((0, 0, width / total, 1))
    if not has_images:
        return figure, left, None
    right = figure.add_axes(((width + gap) / total, 0, images / total, 1), sharey=left)
    return figure, left, right


def _draw_bubbles(axes: "Axes", dataset: Dataset, counts: Array, colours: Array) -> None:
    clients, classes = counts.shape
    client, class_ = np.nonzero(counts)
    # The largest bubble fills most of its cell; areas are in square points, 72 to the inch.
    areas = (CELL * 72 * 0.86) ** 2 * counts[client, class_] / counts.max()
    axes.scatter(class_, client, s=areas, c=colours[class_], linewidths=0, zorder=2)
    axes.set_xlim(-0.5, classes - 0.5)
    axes.set_ylim(clients - 0.5, -0.5)
    names = [plain(name) for name in dataset.classes[:classes]]
    axes.set_xticks(range(classes), names, rotation=0 if max(map(len, names)) <= 2 else 90)
    axes.set_yticks(range(clients), [plain(client_name(dataset, c)) for c in range(clients)])
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
    """An image in a frame of the colour of its class."""
    pixels = as_rgb(image)
    height, width, _ = pixels.shape
    border = max(1, round(BORDER * max(height, width)))
    framed = np.empty((height + 2 * border, width + 2 * border, 3), np.uint8)
    framed[:] = (colour[:3] * 255).astype(np.uint8)
    framed[border:-border, border:-border] = pixels
    return framed


def _colours(classes: int) -> Array:  # [classes, 4]
    from matplotlib import colormaps

    if classes <= 10:
        return np.asarray(colormaps["tab10"](np.arange(classes)))
    return np.asarray(colormaps["turbo"](np.linspace(0.05, 0.95, classes)))


def _what_is_shown(federation: Federation, clients: int, classes: int) -> str:
    """Says so where a long federation is shown in part."""
    if clients == federation.clients and classes == federation.counts.shape[1]:
        return ""
    return f"\n(the first {clients} clients and {classes} classes)"
